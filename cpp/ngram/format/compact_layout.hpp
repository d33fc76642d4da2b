// The layout "small" of a model file: a sorted trie in packed bits.
//
// Order 1: 12 bytes a word, {log_prob, log_backoff, where its continuations begin}, and a last row that only
// says where they end.
// Above: a row is its word, its probability and its back-off weight, one behind the other without gaps; how
// many bits each has, and what they mean, is chosen for each order (ngram/format/quantize.hpp).
// Where continuations begin takes about four bits a row. Rows are in blocks of 16. `samples` has the first
// continuation of each block, and one more; `children` has of block b, from bit samples[b] + 16 b on, which
// needs no pointer,
// - a 0 for each continuation and a 1 after the last one of each row: the 1 of row i stands at bit
//   first[i + 1] + i; or
// - where there are many, and the same bits hold 16 numbers as wide as the block's count of continuations,
//   first[i] − samples[b] of each row i: what a search through many 0s would be too slow for.
// Numbers of a file that was made to harm are kept within their sections as they are read.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/prefetch.hpp"
#include "ngram/format/layout.hpp"
#include "ngram/format/model_file.hpp"
#include "ngram/format/packed_bits.hpp"
#include "ngram/format/quantize.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// Sections of this layout: `columns` once, the others for each order that has them.
enum class SmallPart : std::uint32_t { columns = 0, records, samples, children, probs, backoffs };

inline std::uint32_t small_section(SmallPart part, std::size_t order) {
    return 0x10000 + 8 * static_cast<std::uint32_t>(order) + static_cast<std::uint32_t>(part);
}

inline constexpr std::uint64_t kSmallBlock = 16;  // rows that share a sample

// How the columns of one order are packed: what the section `columns` has of each order above 1.
struct SmallColumns {
    std::uint32_t word_bits = 0;
    std::uint32_t prob_bits = 0, prob_coding = 0;
    std::uint32_t backoff_bits = 0, backoff_coding = 0;  // no bits at the highest order

    std::uint32_t record_bits() const { return word_bits + prob_bits + backoff_bits; }
};

struct SmallUnigram {
    float log_prob, log_backoff;
    std::uint32_t first;
};
static_assert(sizeof(SmallUnigram) == 12);

inline std::uint64_t small_blocks(std::uint64_t rows) { return (rows + kSmallBlock - 1) / kSmallBlock; }

inline std::uint64_t packed_bytes(std::uint64_t bits) { return (bits + 63) / 64 * 8 + kPackedSlack; }

// Whether the first continuations of a block with so many are listed: 16 numbers up to `span` fit its bits,
// 16 bit_width(span) ≤ span + 16. Where they do not, the block has at most 111 bits.
inline bool is_listed(std::uint32_t span) { return span >= 96; }

// The sections of a file of this layout; `rows` must outlive them. It reads all rows once, and keeps a
// quarter of a byte a row. `facts.bits` 8 makes 256 values of each column above order 1.
std::vector<Section> small_sections(const Rows& rows, const FileFacts& facts, std::size_t threads);

class SmallLayout {
  public:
    // Throws Failure where the sections are not those of such a file.
    explicit SmallLayout(std::shared_ptr<ModelFile> file);

    const ModelFile& file() const { return *file_; }
    std::size_t order() const { return levels_.size() + 1; }
    std::uint32_t size(std::size_t n) const {
        return static_cast<std::uint32_t>(file_->facts().sizes[n - 1]);
    }
    // Word numbers by falling probability without context, by rising number among equals.
    std::span<const std::uint32_t> by_probability() const;

    Found first(std::uint32_t word) const {
        const char* at = unigrams_ + sizeof(SmallUnigram) * word;
        file_->touch(at, 2 * sizeof(SmallUnigram));
        SmallUnigram row, next;
        std::memcpy(&row, at, sizeof row);
        std::memcpy(&next, at + sizeof row, sizeof next);
        const std::uint32_t to = std::min(next.first, bigrams_);
        return {true, word, row.log_prob, row.log_backoff, {std::min(row.first, to), to}};
    }

    // What find reads first. Of few rows it is also known about where their continuations are told.
    void prefetch(std::size_t order, Children in, std::uint32_t) const {
        const std::uint32_t size = in.size();
        if (size == 0) return;
        const Level& level = levels_[order - 2];
        const std::uint32_t middle = in.from + size / 2;
        chainrule::prefetch(level.records + (middle * level.record_bits >> 3));
        if (size > kSmallBlock) {
            chainrule::prefetch(level.records + ((middle - size / 4) * level.record_bits >> 3));
            chainrule::prefetch(level.records + ((middle + size / 4) * level.record_bits >> 3));
        } else if (level.samples) {
            chainrule::prefetch(level.samples + middle / kSmallBlock * 4);
        }
    }

    // The second hint, when the first has had its time: the bits that tell the continuations of few rows.
    void prefetch_row(std::size_t order, Children in, std::uint32_t) const {
        const std::uint32_t size = in.size();
        const Level& level = levels_[order - 2];
        if (size == 0 || size > kSmallBlock || !level.samples || !file_->is_verified()) return;
        const std::uint64_t block = (in.from + size / 2) / kSmallBlock;
        std::uint32_t base;
        std::memcpy(&base, level.samples + 4 * block, sizeof base);
        if (base <= level.next_size)
            chainrule::prefetch(level.children + ((base + kSmallBlock * block) >> 3));
    }

    Found find(std::size_t order, Children in, std::uint32_t word) const {
        std::uint32_t size = in.size();
        if (size == 0) return {};
        const Level& level = levels_[order - 2];
        see_records(level, in.from, in.to);
        // The last row of those whose word is not above the one that is looked for: by quarters, since three
        // loads that do not wait for each other take as long as one.
        std::uint32_t row = in.from;
        while (size > 4) {
            const std::uint32_t quarter = size / 4;
            const std::uint32_t one = word_of(level, row + quarter) <= word;
            const std::uint32_t two = word_of(level, row + 2 * quarter) <= word;
            const std::uint32_t three = word_of(level, row + 3 * quarter) <= word;
            row += (one + two + three) * quarter;
            size -= 3 * quarter;
        }
        while (size > 1) {
            const std::uint32_t half = size / 2;
            row = word_of(level, row + half) <= word ? row + half : row;
            size -= half;
        }
        if (word_of(level, row) != word) return {};
        return found(level, row);
    }

    Found at(std::size_t order, std::uint32_t row, std::uint32_t& word) const {
        if (order == 1) {
            word = row;
            return first(row);
        }
        const Level& level = levels_[order - 2];
        see_records(level, row, row + 1);
        word = static_cast<std::uint32_t>(std::min<std::uint64_t>(word_of(level, row), vocabulary_ - 1));
        return found(level, row);
    }

  private:
    // A column of an order, as it is read.
    struct Column {
        Coding coding = Coding::plain;
        std::uint64_t mask = 0;
        const char* table = nullptr;

        float value(std::uint64_t bits) const {
            bits &= mask;
            float number;
            if (coding == Coding::table) {
                std::memcpy(&number, table + sizeof number * bits, sizeof number);
                return number;
            }
            auto whole = static_cast<std::uint32_t>(bits);
            // What is not a number is not written, and read as 0.
            if (coding == Coding::signless) {
                whole = whole > 0x7F800000U ? 0 : whole | 0x80000000U;
            } else if ((whole & 0x7FFFFFFFU) > 0x7F800000U) {
                whole = 0;
            }
            std::memcpy(&number, &whole, sizeof number);
            return number;
        }
    };

    struct Level {
        const char* records = nullptr;
        std::uint64_t record_bits = 0, word_mask = 0;
        std::uint32_t word_bits = 0, to_backoff = 0;  // where the probability and the weight begin
        Column prob, backoff;
        const char* samples = nullptr;  // none at the highest order
        const char* children = nullptr;
        std::uint32_t next_size = 0;  // rows one order up
    };

    void see_records(const Level& level, std::uint64_t from, std::uint64_t to) const {
        if (file_->is_verified()) [[likely]]
            return;
        const std::uint64_t begin = from * level.record_bits >> 3, end = to * level.record_bits >> 3;
        file_->touch(level.records + begin, end - begin + 8);
    }

    static std::uint64_t word_of(const Level& level, std::uint32_t row) {
        return load_bits(level.records, row * level.record_bits) & level.word_mask;
    }

    Found found(const Level& level, std::uint32_t row) const {
        const std::uint64_t at = row * level.record_bits;
        Found made;
        made.is_there = true;
        made.row = row;
        made.log_prob = level.prob.value(load_bits(level.records, at + level.word_bits));
        if (!level.samples) return made;
        made.log_backoff = level.backoff.value(load_bits(level.records, at + level.to_backoff));
        made.children = children(level, row);
        return made;
    }

    Children children(const Level& level, std::uint32_t row) const {
        const std::uint64_t block = row / kSmallBlock;
        const char* sample = level.samples + 4 * block;
        file_->touch(sample, 8);
        const std::uint64_t both = load_little(sample);
        const auto base = static_cast<std::uint32_t>(both), next = static_cast<std::uint32_t>(both >> 32);
        if (base >= next || next > level.next_size) return {};
        const std::uint64_t begin = base + kSmallBlock * block;
        const std::uint32_t span = next - base, j = row % kSmallBlock;
        file_->touch(level.children + (begin >> 3), (span + kSmallBlock) / 8 + kPackedSlack);
        const Children inside =
            is_listed(span) ? listed(level.children, begin, j, span) : counted(level.children, begin, j);
        const std::uint32_t to = std::min(inside.to, span);
        return {base + std::min(inside.from, to), base + to};
    }

    // Of row j of a block whose rows' first continuations are listed, counted from that of the block.
    static Children listed(const char* bits, std::uint64_t begin, std::uint32_t j, std::uint32_t span) {
        const auto width = static_cast<unsigned>(std::bit_width(span));
        const std::uint64_t mask = low_bits(width), at = begin + std::uint64_t{j} * width;
        const std::uint64_t to = j + 1 < kSmallBlock ? load_bits(bits, at + width) & mask : span;
        return {static_cast<std::uint32_t>(load_bits(bits, at) & mask), static_cast<std::uint32_t>(to)};
    }

    // Of row j of a block whose continuations are 0s: those between the 1 before it and its own. With one
    // more 1 in front, the 1 that row j comes behind is number j, and before it stand j 1s.
    static Children counted(const char* bits, std::uint64_t begin, std::uint32_t j) {
        const char* from = bits + (begin >> 3);
        const std::uint64_t shift = begin & 7, near = load_little(from), far = load_little(from + 8);
        const std::uint64_t whole = near >> shift | far << 1 << (63 - shift);
        const std::uint64_t low = whole << 1 | 1, high = far >> shift << 1 | whole >> 63;
        const unsigned ones = count_ones(low);
        const bool is_high = j >= ones;
        const std::uint64_t word = is_high ? high : low;
        const unsigned one = find_one(word, is_high ? j - ones : j);
        const std::uint64_t rest = one < 63 ? word & (~std::uint64_t{1} << one) : 0;
        const unsigned next_low = static_cast<unsigned>(std::countr_zero(rest));
        const unsigned next_high = static_cast<unsigned>(std::countr_zero(high)) + 64;
        const unsigned at = is_high ? one + 64 : one;
        const unsigned next = is_high ? next_low + 64 : rest ? next_low : next_high;
        return {at - j, next - j - 1};
    }

    void open_level(std::size_t n, const SmallColumns& columns);
    Column open_column(std::size_t n, SmallPart table, std::uint32_t coding, std::uint32_t bits) const;
    std::span<const char> part(SmallPart part, std::size_t n, std::uint64_t size) const;

    std::shared_ptr<ModelFile> file_;
    const char* unigrams_ = nullptr;
    std::span<const std::uint32_t> by_probability_;
    std::uint32_t vocabulary_ = 0, bigrams_ = 0;
    std::vector<Level> levels_;  // [k] is of order k + 2
};

}  // namespace chainrule
