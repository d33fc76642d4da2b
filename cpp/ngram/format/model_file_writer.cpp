// Writes sections to a model file or to memory. Each section is filled in pieces by several threads; block
// checksums are summed from the pieces.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/output_file.hpp"
#include "base/parallel.hpp"
#include "ngram/format/model_file.hpp"
#include "ngram/format/model_file_header.hpp"

namespace chainrule {

namespace {

constexpr std::uint64_t kPiece = std::uint64_t{1}
                                 << 20;  // bytes filled by one call, or a chunk if that is more

// File offsets, and the checksums as they are accumulated.
class Plan {
  public:
    Plan(const FileMetadata& metadata, const std::vector<Section>& sections) : metadata_(metadata) {
        std::uint64_t data = 0;
        for (const Section& section : sections) {
            if (section.chunk == 0 || section.chunk % 8 != 0)
                throw ArgumentError("section " + std::to_string(section.id) + " is not made in whole words");
            data += whole_lines(section.size);
        }
        blocks_ = block_count(data);
        header_ = header_bytes(metadata.sizes.size(), sections.size(), blocks_);
        file_ = header_ + data;
        sums_ = std::make_unique<std::atomic<std::uint64_t>[]>(blocks_);
        std::uint64_t from = header_;
        for (const Section& section : sections) {
            entries_.push_back({section.id, 0, from, section.size});
            from += whole_lines(section.size);
        }
    }

    std::uint64_t bytes() const { return file_; }
    std::uint64_t from(std::size_t section) const { return entries_[section].from; }

    // Adds bytes [at, at + size) of the file to the checksums; both are multiples of 8.
    void add(std::uint64_t at, const char* bytes, std::uint64_t size) {
        at -= header_;
        while (size > 0) {
            const std::uint64_t inside = at % kBlock, part = std::min(size, kBlock - inside);
            const std::uint64_t sum = checksum(bytes, part / 8, inside / 8);
            sums_[at / kBlock].fetch_add(sum, std::memory_order_relaxed);
            at += part;
            bytes += part;
            size -= part;
        }
    }

    // The header, once all bytes were added.
    std::vector<char> header() const {
        const ModelMetadata& model = metadata_.model;
        FixedHeader head;
        head.version = metadata_.bits ? kQuantizedVersion : kVersion;
        head.layout = static_cast<std::uint32_t>(metadata_.layout);
        head.bits = metadata_.bits;
        head.order = static_cast<std::uint32_t>(metadata_.sizes.size());
        head.vocabulary = model.vocabulary;
        head.begin = model.begin;
        head.end = model.end;
        head.unknown = model.unknown;
        head.flags = (model.is_stream ? 1U : 0U) | (model.is_closed ? 2U : 0U) |
                     (model.is_normalized ? 4U : 0U) | (model.holds_suffixes ? 8U : 0U) |
                     (model.starts_at_begin ? 16U : 0U);
        head.log_missing = model.log_missing;
        head.sections = static_cast<std::uint32_t>(entries_.size());
        head.header = header_;
        head.file = file_;
        std::vector<char> bytes(header_);
        char* at = bytes.data();
        const auto put = [&at](const void* from, std::size_t size) {
            std::memcpy(at, from, size);
            at += size;
        };
        put(&head, sizeof(head));
        for (const std::uint64_t size : metadata_.sizes) put(&size, 8);
        for (const SectionEntry& entry : entries_) put(&entry, sizeof(entry));
        for (std::size_t block = 0; block < blocks_; ++block) {
            const std::uint64_t sum = sums_[block].load();
            put(&sum, 8);
        }
        const std::uint64_t header_checksum = checksum(bytes.data(), header_ / 8 - 1);
        std::memcpy(bytes.data() + header_ - 8, &header_checksum, 8);
        return bytes;
    }

  private:
    const FileMetadata& metadata_;
    std::uint64_t blocks_ = 0, header_ = 0, file_ = 0;
    std::vector<SectionEntry> entries_;
    std::unique_ptr<std::atomic<std::uint64_t>[]> sums_;
};

void check_metadata(const FileMetadata& metadata) {
    if (metadata.sizes.empty() || metadata.sizes.size() > kMaxOrders)
        throw ArgumentError("a model of order " + std::to_string(metadata.sizes.size()) +
                            " cannot be written; the order is 1 to " + std::to_string(kMaxOrders));
    if (metadata.model.vocabulary == 0 || metadata.model.vocabulary > kMaxWords ||
        metadata.sizes[0] != metadata.model.vocabulary)
        throw ArgumentError("a vocabulary of " + std::to_string(metadata.model.vocabulary) +
                            " words cannot be written; 1 to 2^31 − 1 can");
    const ModelMetadata& model = metadata.model;
    if (model.begin >= model.vocabulary || model.end >= model.vocabulary ||
        (model.unknown >= model.vocabulary && model.unknown != 0xFFFFFFFF))
        throw ArgumentError("<s>, </s> or <unk> is not among the words of the model");
    for (const std::uint64_t size : metadata.sizes)
        if (size > kMaxRows)
            throw ArgumentError(std::to_string(size) +
                                " n-grams of one order cannot be written; cut off rare ones");
}

// Calls deliver(at, size, fill) for each piece of the file, on several threads. `fill` writes the piece and
// the zero padding after a section.
template <class Deliver>
void in_pieces(const Plan& plan, const std::vector<Section>& sections, std::size_t threads,
               const Deliver& deliver) {
    for (std::size_t s = 0; s < sections.size(); ++s) {
        const Section& section = sections[s];
        if (section.prepare) section.prepare();
        const std::uint64_t piece = std::max<std::uint64_t>(1, kPiece / section.chunk) * section.chunk;
        const std::uint64_t pieces = (section.size + piece - 1) / piece;
        std::atomic<std::uint64_t> next{0};
        const std::size_t used = std::max<std::uint64_t>(1, std::min<std::uint64_t>(threads, pieces));
        parallel_for(used, [&](std::size_t) {
            UninitializedBuffer<char> buffer;  // per thread
            for (std::uint64_t i; (i = next.fetch_add(1)) < pieces;) {
                const std::uint64_t from = i * piece, size = std::min(piece, section.size - from);
                const std::uint64_t padded = i + 1 == pieces ? whole_lines(section.size) - from : size;
                deliver(plan.from(s) + from, padded, buffer, [&](char* into) {
                    section.fill(from, size, into);
                    std::memset(into + size, 0, padded - size);
                });
            }
        });
        if (section.done) section.done();
    }
}

}  // namespace

void write_model(const std::string& path, const FileMetadata& metadata, const std::vector<Section>& sections,
                 std::size_t threads) {
    check_metadata(metadata);
    Plan plan(metadata, sections);
    OutputFile file(path);
    in_pieces(plan, sections, threads,
              [&](std::uint64_t at, std::uint64_t size, UninitializedBuffer<char>& buffer, auto fill) {
                  if (buffer.size() < size) buffer = UninitializedBuffer<char>(size);
                  fill(buffer.data());
                  plan.add(at, buffer.data(), size);
                  file.write(at, buffer.data(), size);
              });
    const std::vector<char> header = plan.header();
    file.write(0, header.data(), header.size());
    file.finish();
}

UninitializedBuffer<char> model_image(const FileMetadata& metadata, const std::vector<Section>& sections,
                                      std::size_t threads) {
    check_metadata(metadata);
    Plan plan(metadata, sections);
    UninitializedBuffer<char> image(plan.bytes(), Access::scattered);
    in_pieces(plan, sections, threads,
              [&](std::uint64_t at, std::uint64_t size, UninitializedBuffer<char>&, auto fill) {
                  fill(image.data() + at);
                  plan.add(at, image.data() + at, size);
              });
    const std::vector<char> header = plan.header();
    std::memcpy(image.data(), header.data(), header.size());
    return image;
}

void ModelFile::save(const std::string& path) const {
    begin_call();
    OutputFile file(path);
    const auto header = static_cast<std::uint64_t>(data_ - all_.data());
    file.write(0, all_.data(), header);
    UninitializedBuffer<char> buffer(kBlock);
    for (std::size_t block = 0; block < blocks_; ++block) {
        const std::uint64_t from = block * kBlock, size = block_end(block) - from;
        const char* bytes = data_ + from;
        // An unread block is verified on its way and not kept in memory; nor are its pages mapped.
        if (!verified_[block].load(std::memory_order_acquire)) {
            source_->read(header + from, buffer.data(), size);
            bytes = buffer.data();
            verify(block, bytes);
        }
        file.write(header + from, bytes, size);
    }
    file.finish();
}

}  // namespace chainrule
