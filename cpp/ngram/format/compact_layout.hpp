// The compact layout ("small"): a sorted trie in packed bits.
//
// Order 1: 12 bytes per word, {log_prob, log_backoff, index of the first extension}, plus a final row that
// marks the end. Higher orders: a row is its word, probability and back-off weight, packed without gaps; the
// width and coding of each column are chosen per order (quantize.hpp).
//
// The index of the first extension takes about four bits per row. Rows form blocks of 16. `samples` holds the
// first extension of each block and the end; `children` holds for block b, from bit samples[b] + 16 b on (so
// no pointer is needed),
// - a 0 for each extension and a 1 after the last one of each row (the 1 of row i is bit first[i + 1] + i),
//   or
// - for blocks with many extensions, 16 numbers first[i] − samples[b], where scanning the 0s would be slow.
//
// Values of a malicious file are clamped to their sections when they are read.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "ngram/format/layout.hpp"
#include "ngram/format/model_file.hpp"
#include "ngram/format/packed_bits.hpp"
#include "ngram/format/quantize.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// Sections of this layout: `columns` once, the others once per order.
enum class CompactPart : std::uint32_t { columns = 0, records, samples, children, probs, backoffs };

inline std::uint32_t compact_section(CompactPart part, std::size_t order) {
    return 0x10000 + 8 * static_cast<std::uint32_t>(order) + static_cast<std::uint32_t>(part);
}

inline constexpr std::uint64_t kCompactBlock = 16;  // rows that share a sample

// Packing of the columns of one order above 1, as stored in the section `columns`.
struct CompactColumns {
    std::uint32_t word_bits = 0;
    std::uint32_t prob_bits = 0, prob_coding = 0;
    std::uint32_t backoff_bits = 0, backoff_coding = 0;  // 0 bits at the highest order

    std::uint32_t record_bits() const { return word_bits + prob_bits + backoff_bits; }
};

struct CompactUnigram {
    float log_prob, log_backoff;
    std::uint32_t first;
};
static_assert(sizeof(CompactUnigram) == 12);

inline std::uint64_t compact_blocks(std::uint64_t rows) { return (rows + kCompactBlock - 1) / kCompactBlock; }

inline std::uint64_t packed_bytes(std::uint64_t bits) { return (bits + 63) / 64 * 8 + kPackedSlack; }

// Whether a block with `span` extensions stores 16 numbers instead of a bit sequence. They fit: 16
// bit_width(span) ≤ span + 16. Otherwise a block has at most 111 bits.
inline bool is_listed(std::uint32_t span) { return span >= 96; }

// The sections of a compact model file; `rows` must outlive them. Reads all rows once and keeps a quarter of
// a byte per row. With `metadata.bits` = 8 each column above order 1 is quantised to 256 values.
std::vector<Section> compact_sections(const Rows& rows, const FileMetadata& metadata, std::size_t threads);

class CompactLayout {
  public:
    // Throws Error if the sections do not match the header.
    explicit CompactLayout(std::shared_ptr<ModelFile> file);

    const ModelFile& file() const { return *file_; }
    std::size_t order() const { return levels_.size() + 1; }
    std::uint32_t size(std::size_t n) const {
        return static_cast<std::uint32_t>(file_->metadata().sizes[n - 1]);
    }
    // Word ids by descending unigram probability, ties by ascending id.
    std::span<const std::uint32_t> by_probability() const;

    Lookup first(std::uint32_t word) const {
        const char* at = unigrams_ + sizeof(CompactUnigram) * word;
        file_->touch(at, 2 * sizeof(CompactUnigram));
        CompactUnigram row, next;
        std::memcpy(&row, at, sizeof row);
        std::memcpy(&next, at + sizeof row, sizeof next);
        const std::uint32_t to = std::min(next.first, bigrams_);
        return {true, word, row.log_prob, row.log_backoff, {std::min(row.first, to), to}};
    }

    // Prefetches what find() reads first, and for small ranges the sample of their extensions.
    void prefetch(std::size_t order, Children in, std::uint32_t) const {
        const std::uint32_t size = in.size();
        if (size == 0) return;
        const Level& level = levels_[order - 2];
        const std::uint32_t middle = in.from + size / 2;
        chainrule::prefetch(level.records + (middle * level.record_bits >> 3));
        if (size > kCompactBlock) {
            chainrule::prefetch(level.records + ((middle - size / 4) * level.record_bits >> 3));
            chainrule::prefetch(level.records + ((middle + size / 4) * level.record_bits >> 3));
        } else if (level.samples) {
            chainrule::prefetch(level.samples + middle / kCompactBlock * 4);
        }
    }

    // Second hint: the bits that encode the extensions of a small range.
    void prefetch_row(std::size_t order, Children in, std::uint32_t) const {
        const std::uint32_t size = in.size();
        const Level& level = levels_[order - 2];
        if (size == 0 || size > kCompactBlock || !level.samples || !file_->is_verified()) return;
        const std::uint64_t block = (in.from + size / 2) / kCompactBlock;
        std::uint32_t base;
        std::memcpy(&base, level.samples + 4 * block, sizeof base);
        if (base <= level.next_size)
            chainrule::prefetch(level.children + ((base + kCompactBlock * block) >> 3));
    }

    Lookup find(std::size_t order, Children in, std::uint32_t word) const {
        std::uint32_t size = in.size();
        if (size == 0) return {};
        const Level& level = levels_[order - 2];
        see_records(level, in.from, in.to);
        // Finds the last row whose word is not above `word`. Splitting in four issues three
        // independent loads per step, which takes as long as one.
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
        return lookup(level, row);
    }

    Lookup at(std::size_t order, std::uint32_t row, std::uint32_t& word) const {
        if (order == 1) {
            word = row;
            return first(row);
        }
        const Level& level = levels_[order - 2];
        see_records(level, row, row + 1);
        word = static_cast<std::uint32_t>(std::min<std::uint64_t>(word_of(level, row), vocabulary_ - 1));
        return lookup(level, row);
    }

  private:
    // Decoder of one column.
    struct Column {
        ColumnCoding coding = ColumnCoding::plain;
        std::uint64_t mask = 0;
        const char* table = nullptr;

        float value(std::uint64_t bits) const {
            bits &= mask;
            float number;
            if (coding == ColumnCoding::table) {
                std::memcpy(&number, table + sizeof number * bits, sizeof number);
                return number;
            }
            auto whole = static_cast<std::uint32_t>(bits);
            // NaN is never written; it is read as 0.
            if (coding == ColumnCoding::signless) {
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
        std::uint32_t word_bits = 0, to_backoff = 0;  // bit offsets of the probability and the weight
        Column prob, backoff;
        const char* samples = nullptr;  // null at the highest order
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

    Lookup lookup(const Level& level, std::uint32_t row) const {
        const std::uint64_t at = row * level.record_bits;
        Lookup result;
        result.is_present = true;
        result.row = row;
        result.log_prob = level.prob.value(load_bits(level.records, at + level.word_bits));
        if (!level.samples) return result;
        result.log_backoff = level.backoff.value(load_bits(level.records, at + level.to_backoff));
        result.children = children(level, row);
        return result;
    }

    Children children(const Level& level, std::uint32_t row) const {
        const std::uint64_t block = row / kCompactBlock;
        const char* sample = level.samples + 4 * block;
        file_->touch(sample, 8);
        const std::uint64_t both = load_little(sample);
        const auto base = static_cast<std::uint32_t>(both), next = static_cast<std::uint32_t>(both >> 32);
        if (base > next || next > level.next_size) return {};
        // Rows without extensions have a position, too: conversion reads it as the first extension.
        if (base == next) return {base, base};
        const std::uint64_t begin = base + kCompactBlock * block;
        const std::uint32_t span = next - base, j = row % kCompactBlock;
        file_->touch(level.children + (begin >> 3), (span + kCompactBlock) / 8 + kPackedSlack);
        const Children inside =
            is_listed(span) ? listed(level.children, begin, j, span) : counted(level.children, begin, j);
        const std::uint32_t to = std::min(inside.to, span);
        return {base + std::min(inside.from, to), base + to};
    }

    // Extensions of row j, relative to the block, in the list encoding.
    static Children listed(const char* bits, std::uint64_t begin, std::uint32_t j, std::uint32_t span) {
        const auto width = static_cast<unsigned>(std::bit_width(span));
        const std::uint64_t mask = low_bits(width), at = begin + std::uint64_t{j} * width;
        const std::uint64_t to = j + 1 < kCompactBlock ? load_bits(bits, at + width) & mask : span;
        return {static_cast<std::uint32_t>(load_bits(bits, at) & mask), static_cast<std::uint32_t>(to)};
    }

    // Extensions of row j, relative to the block, in the bit encoding: the 0s between the preceding 1 and
    // its own 1. After prepending a 1, row j follows the j-th 1, which has j 1s before it.
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

    void open_level(std::size_t n, const CompactColumns& columns);
    Column open_column(std::size_t n, CompactPart table, std::uint32_t coding, std::uint32_t bits) const;
    std::span<const char> part(CompactPart part, std::size_t n, std::uint64_t size) const;

    std::shared_ptr<ModelFile> file_;
    const char* unigrams_ = nullptr;
    std::span<const std::uint32_t> by_probability_;
    std::uint32_t vocabulary_ = 0, bigrams_ = 0;
    std::vector<Level> levels_;  // [k] is of order k + 2
};

}  // namespace chainrule
