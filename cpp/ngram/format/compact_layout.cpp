#include "ngram/format/compact_layout.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/logarithm.hpp"
#include "base/parallel.hpp"
#include "ngram/format/hashed_layout.hpp"
#include "ngram/format/stored_vocabulary.hpp"

namespace chainrule {

namespace {

template <class T>
T read_at(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Validates values that are used unchecked; everything else is clamped when it is read.
class ContentCheck {
  public:
    explicit ContentCheck(const ModelFile& file) : file_(&file) {}

    void operator()(std::uint32_t section, std::uint64_t from, std::uint64_t to) const {
        const char* const bytes = file_->section(section).data();
        bool is_good = true;
        if (section == kByProbability) {
            for (std::uint64_t at = from; at + 4 <= to; at += 4)
                is_good &= read_at<std::uint32_t>(bytes + at) < file_->metadata().model.vocabulary;
        } else if (section == compact_section(CompactPart::records, 1)) {
            for (std::uint64_t at = from; at + 4 <= to; at += 4)  // the third number of a row is not a float
                is_good &= at % sizeof(CompactUnigram) == 8 || is_log_value(read_at<float>(bytes + at));
        }
        if (!is_good) file_->fail("it contains an invalid word id");
    }

  private:
    const ModelFile* file_;  // owns this check
};

}  // namespace

CompactLayout::CompactLayout(std::shared_ptr<ModelFile> file) : file_(std::move(file)) {
    const FileMetadata& metadata = file_->metadata();
    if (metadata.layout != LayoutKind::small) file_->fail("its layout is not \"small\"");
    vocabulary_ = metadata.model.vocabulary;
    bigrams_ = metadata.sizes.size() > 1 ? static_cast<std::uint32_t>(metadata.sizes[1]) : 0;
    unigrams_ =
        part(CompactPart::records, 1, sizeof(CompactUnigram) * (std::uint64_t{vocabulary_} + 1)).data();
    const std::span<const char> falling = file_->section(kByProbability);
    if (falling.size() != std::size_t{4} * vocabulary_) file_->fail("its words by probability are not there");
    by_probability_ = {reinterpret_cast<const std::uint32_t*>(falling.data()), vocabulary_};
    file_->on_verified(ContentCheck(*file_));
    const std::size_t above = metadata.sizes.size() - 1;
    const std::span<const char> columns = part(CompactPart::columns, 1, sizeof(CompactColumns) * above);
    file_->touch(columns.data(), columns.size());
    for (std::size_t k = 0; k < above; ++k) {
        CompactColumns of_order;
        std::memcpy(&of_order, columns.data() + sizeof of_order * k, sizeof of_order);
        open_level(k + 2, of_order);
    }
}

std::span<const std::uint32_t> CompactLayout::by_probability() const {
    file_->touch(by_probability_.data(), by_probability_.size_bytes());
    return by_probability_;
}

void CompactLayout::open_level(std::size_t n, const CompactColumns& columns) {
    const std::vector<std::uint64_t>& sizes = file_->metadata().sizes;
    const std::uint64_t size = sizes[n - 1];
    if (columns.word_bits != static_cast<std::uint32_t>(std::bit_width(vocabulary_ - 1)))
        file_->fail("its words are not as wide as its vocabulary");
    Level level;
    level.prob = open_column(n, CompactPart::probs, columns.prob_coding, columns.prob_bits);
    level.word_bits = columns.word_bits;
    level.word_mask = low_bits(columns.word_bits);
    level.to_backoff = columns.word_bits + columns.prob_bits;
    if (n < sizes.size()) {
        level.backoff = open_column(n, CompactPart::backoffs, columns.backoff_coding, columns.backoff_bits);
        level.next_size = static_cast<std::uint32_t>(sizes[n]);
        const std::uint64_t blocks = compact_blocks(size);
        level.samples = part(CompactPart::samples, n, 4 * (blocks + 1)).data();
        level.children =
            part(CompactPart::children, n, packed_bytes(sizes[n] + kCompactBlock * blocks)).data();
    } else if (columns.backoff_bits != 0) {
        file_->fail("its highest order has back-off weights");
    }
    level.record_bits = columns.record_bits();
    level.records = part(CompactPart::records, n, packed_bytes(size * level.record_bits)).data();
    levels_.push_back(level);
}

CompactLayout::Column CompactLayout::open_column(std::size_t n, CompactPart table, std::uint32_t coding,
                                                 std::uint32_t bits) const {
    Column column;
    column.coding = static_cast<ColumnCoding>(coding);
    column.mask = low_bits(bits);
    if (coding == static_cast<std::uint32_t>(ColumnCoding::table) && bits <= kMaxTableBits) {
        const std::span<const char> values = part(table, n, sizeof(float) << bits);
        file_->touch(values.data(), values.size());
        column.table = values.data();
        for (std::size_t i = 0; i < values.size(); i += sizeof(float))
            if (!is_log_value(read_at<float>(values.data() + i))) file_->fail("a value is not a number");
        return column;
    }
    const bool is_plain = coding == static_cast<std::uint32_t>(ColumnCoding::plain) && bits == kPlainBits;
    const bool is_signless =
        coding == static_cast<std::uint32_t>(ColumnCoding::signless) && bits == kSignlessBits;
    if (!is_plain && !is_signless) file_->fail("a column has an unknown encoding");
    return column;
}

std::span<const char> CompactLayout::part(CompactPart part, std::size_t n, std::uint64_t size) const {
    const std::span<const char> bytes = file_->section(compact_section(part, n));
    if (bytes.size() != size)
        file_->fail("section " + std::to_string(static_cast<std::uint32_t>(part)) + " of order " +
                    std::to_string(n) + " does not have its size");
    return bytes;
}

// Writing. All rows are read once to choose how the columns are packed, and once per section; a section can
// be filled from any block of rows on.

namespace {

constexpr std::uint64_t kPiece = 8192;  // rows read at a time: a whole number of blocks

// Column statistics of one order, collected before it is written.
struct CompactOrder {
    CompactColumns columns;
    ColumnCodes prob, backoff;
    UninitializedBuffer<std::uint32_t>
        samples;  // of each block, the first continuation; one more, where all end
    std::uint64_t size = 0, next_size = 0;
    bool has_children = false;
};

CompactColumns columns_of(const CompactOrder& order, std::uint32_t vocabulary) {
    CompactColumns columns;
    columns.word_bits = static_cast<std::uint32_t>(std::bit_width(vocabulary - 1));
    columns.prob_bits = order.prob.bits;
    columns.prob_coding = static_cast<std::uint32_t>(order.prob.coding);
    if (!order.has_children) return columns;
    columns.backoff_bits = order.backoff.bits;
    columns.backoff_coding = static_cast<std::uint32_t>(order.backoff.coding);
    return columns;
}

// Statistics collected by one thread.
void survey_pieces(const Rows& rows, std::size_t n, std::atomic<std::uint64_t>& next, ColumnStatistics& probs,
                   ColumnStatistics& backoffs, CompactOrder& order) {
    std::vector<float> prob(kPiece), backoff(kPiece);
    std::vector<std::uint32_t> first(kPiece + 1);
    for (std::uint64_t from; (from = kPiece * next.fetch_add(1)) < order.size;) {
        const std::size_t count = std::min(kPiece, order.size - from);
        const bool is_context = order.has_children;
        rows.read(n, from, count, nullptr, prob.data(), is_context ? backoff.data() : nullptr,
                  is_context ? first.data() : nullptr);
        probs.add({prob.data(), count});
        if (!is_context) continue;
        backoffs.add({backoff.data(), count});
        for (std::size_t i = 0; i < count; i += kCompactBlock)
            order.samples[(from + i) / kCompactBlock] = first[i];
    }
}

std::shared_ptr<const CompactOrder> survey(const Rows& rows, const FileMetadata& metadata, std::size_t n,
                                           std::size_t threads) {
    auto order = std::make_shared<CompactOrder>();
    order->size = rows.size(n);
    order->has_children = n < rows.order();
    if (order->has_children) {
        order->next_size = rows.size(n + 1);
        order->samples = UninitializedBuffer<std::uint32_t>(compact_blocks(order->size) + 1);
        order->samples[order->samples.size() - 1] = static_cast<std::uint32_t>(order->next_size);
    }
    const std::uint64_t pieces = (order->size + kPiece - 1) / kPiece;
    const std::size_t used = std::max<std::uint64_t>(1, std::min<std::uint64_t>(threads, pieces));
    std::vector<ColumnStatistics> probs(used, ColumnStatistics(metadata.bits != 0));
    std::vector<ColumnStatistics> backoffs(used, ColumnStatistics(metadata.bits != 0));
    std::atomic<std::uint64_t> next{0};
    parallel_for(used, [&](std::size_t t) { survey_pieces(rows, n, next, probs[t], backoffs[t], *order); });
    for (std::size_t t = 1; t < used; ++t) {
        probs[0].join(probs[t]);
        backoffs[0].join(backoffs[t]);
    }
    order->prob = probs[0].codes();
    if (order->has_children) order->backoff = backoffs[0].codes();
    order->columns = columns_of(*order, metadata.model.vocabulary);
    return order;
}

// A section whose bytes are already in memory.
Section section_of(std::uint32_t id, std::shared_ptr<const void> owner, const void* bytes,
                   std::uint64_t size) {
    Section section;
    section.id = id;
    section.size = size;
    section.fill = [owner = std::move(owner), bytes](std::uint64_t from, std::uint64_t count, char* into) {
        std::memcpy(into, static_cast<const char*>(bytes) + from, count);
    };
    return section;
}

Section unigrams(const Rows& rows) {
    Section section;
    section.id = compact_section(CompactPart::records, 1);
    section.size = sizeof(CompactUnigram) * (rows.size(1) + 1);
    section.chunk = sizeof(CompactUnigram) * kPiece;
    section.fill = [&rows](std::uint64_t from, std::uint64_t size, char* into) {
        const std::uint64_t begin = from / sizeof(CompactUnigram),
                            end = begin + size / sizeof(CompactUnigram);
        const std::size_t count = std::min(end, rows.size(1)) - begin;
        std::vector<float> prob(count), backoff(count);
        std::vector<std::uint32_t> first(count + 1);
        rows.read(1, begin, count, nullptr, prob.data(), backoff.data(),
                  rows.order() > 1 ? first.data() : nullptr);
        for (std::size_t i = 0; i < end - begin; ++i) {
            CompactUnigram row{0, 0, first[i]};
            if (i < count) row = {prob[i], backoff[i], first[i]};
            std::memcpy(into + sizeof row * i, &row, sizeof row);
        }
    };
    return section;
}

// Packs rows [from, from + count) of an order.
void pack_records(const Rows& rows, std::size_t n, const CompactOrder& order, std::uint64_t from,
                  std::size_t count, BitPacker& packer) {
    std::vector<std::uint32_t> word(count);
    std::vector<float> prob(count), backoff(order.has_children ? count : 0);
    rows.read(n, from, count, word.data(), prob.data(), order.has_children ? backoff.data() : nullptr,
              nullptr);
    const CompactColumns& columns = order.columns;
    for (std::size_t i = 0; i < count; ++i) {
        packer.put(word[i], columns.word_bits);
        packer.put(order.prob.code(prob[i]), columns.prob_bits);
        if (order.has_children) packer.put(order.backoff.code(backoff[i]), columns.backoff_bits);
    }
}

Section records(const Rows& rows, std::size_t n, const std::shared_ptr<const CompactOrder>& order) {
    // 64 records of any width fill whole 8-byte words, so every chunk begins with a record.
    const std::uint64_t width = order->columns.record_bits();
    Section section;
    section.id = compact_section(CompactPart::records, n);
    section.size = packed_bytes(order->size * width);
    section.chunk = std::max<std::uint64_t>(8, kPiece / 8 * width);
    section.fill = [&rows, n, order, width](std::uint64_t from, std::uint64_t size, char* into) {
        const std::uint64_t begin = width ? 8 * from / width : 0;
        const std::uint64_t end = width ? std::min(order->size, begin + 8 * size / width) : 0;
        BitPacker packer(into);
        for (std::uint64_t row = begin; row < end; row += kPiece)
            pack_records(rows, n, *order, row, std::min(kPiece, end - row), packer);
        char* last = packer.finish();
        std::memset(last, 0, static_cast<std::size_t>(into + size - last));
    };
    return section;
}

// Writes bits of a section and drops those outside a range.
class BitRange {
  public:
    BitRange(std::uint64_t from, std::uint64_t size, char* into)
        : from_(8 * from), to_(8 * (from + size)), into_(into) {
        std::memset(into, 0, size);
    }

    std::uint64_t from() const { return from_; }
    std::uint64_t to() const { return to_; }

    void set(std::uint64_t at) {
        if (at < from_ || at >= to_) return;
        char& byte = into_[(at - from_) / 8];
        byte = static_cast<char>(static_cast<unsigned char>(byte) | 1U << at % 8);
    }

    void set_number(std::uint64_t at, std::uint64_t number) {
        for (; number; number &= number - 1) set(at + static_cast<unsigned>(std::countr_zero(number)));
    }

  private:
    std::uint64_t from_, to_;
    char* into_;
};

// Bits of one block, whose rows have first extensions first[0 … 64].
void put_block(std::uint64_t block, const std::uint32_t* first, BitRange& bits) {
    const std::uint32_t base = first[0], span = first[kCompactBlock] - base;
    const std::uint64_t begin = base + kCompactBlock * block;
    const auto width = static_cast<std::uint64_t>(std::bit_width(span));
    for (std::uint64_t j = 0; j < kCompactBlock; ++j) {
        if (is_listed(span))
            bits.set_number(begin + j * width, first[j] - base);
        else
            bits.set(begin + (first[j + 1] - base) + j);
    }
}

// Blocks [from, to) of an order; rows after the last one have no extensions.
void put_blocks(const Rows& rows, std::size_t n, const CompactOrder& order, std::uint64_t from,
                std::uint64_t to, BitRange& bits) {
    const std::uint64_t begin = from * kCompactBlock;
    const std::size_t count = std::min(to * kCompactBlock, order.size) - begin;
    std::vector<std::uint32_t> first((to - from) * kCompactBlock + 1,
                                     static_cast<std::uint32_t>(order.next_size));
    rows.read(n, begin, count, nullptr, nullptr, nullptr, first.data());
    for (std::uint64_t block = from; block < to; ++block)
        put_block(block, first.data() + (block - from) * kCompactBlock, bits);
}

Section children(const Rows& rows, std::size_t n, const std::shared_ptr<const CompactOrder>& order) {
    const std::uint64_t blocks = compact_blocks(order->size);
    Section section;
    section.id = compact_section(CompactPart::children, n);
    section.size = packed_bytes(order->next_size + kCompactBlock * blocks);
    section.fill = [&rows, n, order, blocks](std::uint64_t from, std::uint64_t size, char* into) {
        BitRange bits(from, size, into);
        const auto begin_of = [&](std::uint64_t b) { return order->samples[b] + kCompactBlock * b; };
        // The first block that ends after the start of the range.
        std::uint64_t block = 0, left = blocks;
        while (left > 0) {
            const std::uint64_t half = left / 2;
            const bool is_before = begin_of(block + half + 1) <= bits.from();
            block = is_before ? block + half + 1 : block;
            left = is_before ? left - half - 1 : half;
        }
        while (block < blocks && begin_of(block) < bits.to()) {
            std::uint64_t end = block;
            while (end < blocks && end - block < kPiece / kCompactBlock && begin_of(end) < bits.to()) ++end;
            put_blocks(rows, n, *order, block, end, bits);
            block = end;
        }
    };
    return section;
}

void add_table(std::vector<Section>& sections, CompactPart part, std::size_t n,
               const std::shared_ptr<const CompactOrder>& order, const ColumnCodes& codes) {
    if (codes.coding != ColumnCoding::table) return;
    sections.push_back(
        section_of(compact_section(part, n), order, codes.table.data(), sizeof(float) * codes.table.size()));
}

}  // namespace

std::vector<Section> compact_sections(const Rows& rows, const FileMetadata& metadata, std::size_t threads) {
    if (metadata.sizes.size() != rows.order())
        throw ArgumentError("the rows are of another order than the model");
    if (metadata.bits != 0 && metadata.bits != 8)
        throw ArgumentError("bits is " + std::to_string(metadata.bits) + "; choose 0 (no quantization) or 8");
    std::vector<Section> sections;
    const auto columns = std::make_shared<std::vector<CompactColumns>>();
    sections.push_back(by_probability_section(rows));
    sections.push_back(unigrams(rows));
    for (std::size_t n = 2; n <= rows.order(); ++n) {
        const std::shared_ptr<const CompactOrder> order = survey(rows, metadata, n, threads);
        columns->push_back(order->columns);
        sections.push_back(records(rows, n, order));
        add_table(sections, CompactPart::probs, n, order, order->prob);
        if (!order->has_children) break;
        add_table(sections, CompactPart::backoffs, n, order, order->backoff);
        sections.push_back(section_of(compact_section(CompactPart::samples, n), order, order->samples.data(),
                                      sizeof(std::uint32_t) * order->samples.size()));
        sections.push_back(children(rows, n, order));
    }
    if (rows.order() > 1)
        sections.push_back(section_of(compact_section(CompactPart::columns, 1), columns, columns->data(),
                                      sizeof(CompactColumns) * columns->size()));
    return sections;
}

}  // namespace chainrule
