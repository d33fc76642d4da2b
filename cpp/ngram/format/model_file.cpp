#include "ngram/format/model_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "ngram/format/model_file_header.hpp"

namespace chainrule {

namespace {

template <class T>
T read_at(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
}

bool is_word(std::uint32_t word, std::uint32_t vocabulary) { return word < vocabulary; }

// Rejects headers that no writer of this version produces.
bool is_plausible(const FixedHeader& head) {
    const bool has_words = head.vocabulary > 0 && head.vocabulary <= kMaxWords &&
                           is_word(head.begin, head.vocabulary) && is_word(head.end, head.vocabulary) &&
                           (head.unknown == 0xFFFFFFFF || is_word(head.unknown, head.vocabulary));
    const bool has_layout = head.layout == 1 || head.layout == 2;
    return has_words && has_layout && (head.bits == 0 || head.bits == 8) && head.order > 0 &&
           head.order <= kMaxOrders && head.flags < 32 && head.zero == 0 && std::isfinite(head.log_missing);
}

}  // namespace

void ModelFile::fail(const std::string& what) const {
    throw ModelFileError((path_.empty() ? std::string("the model") : path_) + " is damaged: " + what +
                         "; copy it again from its source, or retrain the model");
}

std::shared_ptr<ModelFile> ModelFile::open(const std::string& path, bool verify_all,
                                           std::uint64_t verified_at_open, std::uint64_t largest_copy) {
    std::shared_ptr<ModelFile> file(new ModelFile);
    file->path_ = path;
    if (verify_all) verified_at_open = static_cast<std::uint64_t>(-1);
    file->take_bytes(largest_copy ? largest_copy : physical_memory() / 2, verified_at_open);
    file->read_header();
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    // Below a few megabytes starting a thread costs more than it saves.
    if (file->bytes() <= verified_at_open)
        file->verify_all(file->bytes() < (4U << 20) ? 1 : std::min<std::size_t>(2, cores));
    if (file->is_verified() && !file->is_mapped_) file->source_.reset();
    return file;
}

// Allocates memory for a copy of the file and reads the header, or maps the file.
void ModelFile::take_bytes(std::uint64_t largest_copy, std::uint64_t verified_at_open) {
    source_ = std::make_unique<InputFile>(path_, FileRole::model);
    const std::uint64_t size = source_->size();
    FixedHeader head;
    if (size >= sizeof head) source_->read(0, reinterpret_cast<char*>(&head), sizeof head);
    if (size < sizeof head || head.magic != kMagic)
        throw ModelFileError(path_ + " is not an n-gram model file, or is truncated; retrain the model");
    if (size > largest_copy && source_->map()) {
        is_mapped_ = true;
        all_ = {source_->map(), size};
        return;
    }
    // A file read at once is placed in huge pages; of another file most pages may never be used.
    image_ = UninitializedBuffer<char>(size, size <= verified_at_open ? Access::scattered : Access::in_order);
    all_ = {image_.data(), size};
    const std::uint64_t header = std::clamp<std::uint64_t>(head.header, sizeof head, size);
    source_->read(0, image_.data(), header);
}

std::shared_ptr<ModelFile> ModelFile::of(UninitializedBuffer<char> image) {
    std::shared_ptr<ModelFile> file(new ModelFile);
    file->image_ = std::move(image);
    file->all_ = {file->image_.data(), file->image_.size()};
    file->read_header();
    for (std::size_t i = 0; i < file->blocks_; ++i) file->verified_[i] = true;
    file->left_ = 0;
    file->is_verified_ = true;
    return file;
}

void ModelFile::read_header() {
    const auto head = read_at<FixedHeader>(all_.data());
    if (head.version != kVersion && head.version != kQuantizedVersion)
        throw ModelFileError(path_ + " is an n-gram model of version " + std::to_string(head.version) +
                             ", but this version of chainrule reads versions " + std::to_string(kVersion) +
                             " and " + std::to_string(kQuantizedVersion) +
                             "; use the version of chainrule that wrote it, or retrain the model");
    if (head.file != all_.size())
        fail("it has " + std::to_string(all_.size()) + " bytes but should have " + std::to_string(head.file));
    if (head.header > head.file || head.header % kCacheLine != 0) fail("its header does not fit it");
    blocks_ = block_count(head.file - head.header);
    if (head.order > kMaxOrders || header_bytes(head.order, head.sections, blocks_) != head.header)
        fail("its header does not fit it");
    digest_ = read_at<std::uint64_t>(all_.data() + head.header - 8);
    if (checksum(all_.data(), head.header / 8 - 1) != digest_)
        fail("the checksum of its header does not match");
    if (!is_plausible(head)) fail("its header contains invalid values");

    metadata_.layout = static_cast<LayoutKind>(head.layout);
    metadata_.bits = head.bits;
    metadata_.model = {head.vocabulary,      head.begin,           head.end,
                       head.unknown,         (head.flags & 1) > 0, (head.flags & 2) > 0,
                       (head.flags & 4) > 0, head.log_missing,     (head.flags & 8) > 0,
                       (head.flags & 16) > 0};
    // Quantised models of version 2 were rounded without renormalising the back-off weights.
    if (metadata_.bits && head.version < kQuantizedVersion) metadata_.model.is_normalized = false;
    const char* at = all_.data() + sizeof(FixedHeader);
    for (std::uint32_t n = 0; n < head.order; ++n, at += 8)
        metadata_.sizes.push_back(read_at<std::uint64_t>(at));
    if (metadata_.sizes[0] != head.vocabulary || *std::ranges::max_element(metadata_.sizes) > kMaxRows)
        fail("its header contains invalid values");
    read_places(at, head.sections, head.header);
    data_ = all_.data() + head.header;
    checksums_ = at + sizeof(SectionEntry) * head.sections;
    verified_ = std::make_unique<std::atomic<bool>[]>(blocks_);
    left_ = blocks_;
    is_verified_ = blocks_ == 0;
}

void ModelFile::read_places(const char* at, std::uint32_t count, std::uint64_t header) {
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto entry = read_at<SectionEntry>(at + sizeof(SectionEntry) * i);
        const bool is_inside = entry.from >= header && entry.from <= all_.size() &&
                               entry.size <= all_.size() - entry.from && entry.from % kCacheLine == 0;
        if (!is_inside || entry.zero) fail("a section lies outside it");
        if (std::ranges::find(section_ranges_, entry.id, &SectionRange::id) != section_ranges_.end())
            fail("it has a section twice");
        section_ranges_.push_back({entry.id, entry.from - header, entry.size});
    }
}

std::span<const char> ModelFile::section(std::uint32_t id) const {
    const auto section_range = std::ranges::find(section_ranges_, id, &SectionRange::id);
    if (section_range == section_ranges_.end()) return {};
    return {data_ + section_range->from, section_range->size};
}

std::uint64_t ModelFile::block_end(std::size_t block) const {
    return std::min<std::uint64_t>((block + 1) * kBlock, all_.data() + all_.size() - data_);
}

void ModelFile::verify(std::size_t block, const char* bytes) const {
    const std::uint64_t words = (block_end(block) - block * kBlock) / 8;
    if (checksum(bytes, words) != read_at<std::uint64_t>(checksums_ + 8 * block))
        fail("block " + std::to_string(block + 1) + " of " + std::to_string(blocks_) +
             " has a wrong checksum");
}

// A block is read once, by one thread; its bytes do not change after it is verified.
void ModelFile::load(std::size_t block) const {
    const std::lock_guard<std::mutex> lock(loading_[block % loading_.size()]);
    if (verified_[block].load(std::memory_order_acquire)) return;
    const std::uint64_t from = block * kBlock;
    if (!is_mapped_) {
        const std::uint64_t at = static_cast<std::uint64_t>(data_ - all_.data()) + from;
        source_->read(at, image_.data() + at, block_end(block) - from);
    }
    verify(block, data_ + from);
    if (check_) check_content(block);
    verified_[block].store(true, std::memory_order_release);
    if (left_.fetch_sub(1) == 1) is_verified_.store(true, std::memory_order_release);
}

void ModelFile::check_content(std::size_t block) const {
    const std::uint64_t from = block * kBlock, to = block_end(block);
    for (const SectionRange& section_range : section_ranges_) {
        const std::uint64_t begin = std::max(from, section_range.from),
                            end = std::min(to, section_range.from + section_range.size);
        if (begin < end) check_(section_range.id, begin - section_range.from, end - section_range.from);
    }
}

void ModelFile::verify_all(std::size_t threads) const {
    if (is_verified()) return;
    threads = std::max<std::size_t>(1, std::min(threads, blocks_));
    parallel_for(threads, [&](std::size_t t) {
        const std::size_t end = part_begin(blocks_, t + 1, threads);
        for (std::size_t block = part_begin(blocks_, t, threads); block < end; ++block)
            if (!verified_[block].load(std::memory_order_acquire)) load(block);
    });
}

void ModelFile::count_lookups(std::uint64_t words) const {
    if (is_verified()) return;
    if (lookups_.fetch_add(words) + words >= bytes() / 1024) verify_all(1);
}

void ModelFile::on_verified(Check check) {
    if (path_.empty()) return;
    check_ = std::move(check);
    for (std::size_t block = 0; block < blocks_; ++block)
        if (verified_[block].load(std::memory_order_acquire)) check_content(block);
}

// Out of line: in the common case every block is verified already.
void ModelFile::touch_blocks(const void* from, std::size_t size) const {
    if (size == 0) return;
    const auto at = static_cast<std::size_t>(static_cast<const char*>(from) - data_);
    for (std::size_t block = at / kBlock; block <= (at + size - 1) / kBlock; ++block)
        if (!verified_[block].load(std::memory_order_acquire)) load(block);
}

}  // namespace chainrule
