// The hashed layout ("fast"): plain rows, and per order a hash index to find a word among the extensions of a
// context. At most 20 bytes per row, 12 at the highest order.
//
// Each context has its own index, in the 4 bytes per extension of the index section,
// so that its position follows from that of the rows:
// - c < 2^16 extensions: 2c slots of 16 bits, half of them used (open addressing, wrapping within the 2c). A
//   slot is 0, or b = ⌈log2(c + 1)⌉ bits of the row (counted from 1 within the context) below 16 − b bits of
//   a hash of the word, so that most absent words are rejected without reading a row.
// - otherwise: c numbers of 32 bits, a directory; entry j is the number of rows before the words from j V / c
//   on.
// Any bits in an index lead to a row of the same context or to none, so only the content of rows must be
// validated.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "ngram/format/layout.hpp"
#include "ngram/format/model_file.hpp"

namespace chainrule {

inline constexpr std::uint32_t kHashedRows = 0x1000, kHashedIndex = 0x2000;  // + the order

// Size of an index; four slots may be read from any position in it.
inline std::uint64_t hashed_index_bytes(std::uint64_t rows) { return 4 * rows + 8; }

// Directory entry of `word` for c extensions sorted by word.
inline std::uint32_t directory_slot(std::uint32_t word, std::uint32_t c, std::uint32_t vocabulary) {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(word) * c / vocabulary);
}

struct HashedRow {
    std::uint32_t word;
    float log_prob, log_backoff;
    std::uint32_t first;  // first continuation; they end at `first` of the next row
};

struct HashedTopRow {  // of the highest order
    std::uint32_t word;
    float log_prob;
};

inline constexpr std::uint32_t kMinSorted =
    1U << 16;  // number of extensions from which the index is a directory instead of a hash table

// Hash index of the c extensions of a context. A word is in the first free slot from its home slot on;
// usually within four, which are compared at once.
struct ChildHash {
    static std::uint64_t mix(std::uint32_t word) { return word * 0x9E3779B97F4A7C15ULL; }
    // Home slot; the four slots from there on belong to this context if it has as many.
    static std::uint32_t home(std::uint32_t c, std::uint64_t mixed) {
        const std::int64_t homes = std::max<std::int64_t>(2 * std::int64_t{c} - 3, 1);
        return static_cast<std::uint32_t>(((mixed >> 32) * static_cast<std::uint64_t>(homes)) >> 32);
    }
    static std::uint32_t bits(std::uint32_t c) { return static_cast<std::uint32_t>(std::bit_width(c)); }
    // Upper bits of a slot; the row, counted from 1, is in the lower bits.
    static std::uint32_t tag(std::uint32_t bits, std::uint64_t mixed) {
        return (static_cast<std::uint32_t>(mixed) >> 16) >> bits << bits;
    }

    struct Probe {
        std::uint32_t row;  // within the context
        bool is_present;    // a slot has the word's tag
        bool is_unsure;     // these four slots are not conclusive
    };
    // Compares the four slots from the home slot on, for 1 to 2^16 − 1 extensions.
    static Probe probe_slots(const std::uint16_t* home, std::uint32_t c, std::uint64_t mixed) {
        const std::uint64_t tag_bits = kTagBits[static_cast<std::size_t>(std::bit_width(c | 1))];
        std::uint64_t four;
        std::memcpy(&four, home, 8);
        const std::uint64_t other = (four ^ (static_cast<std::uint32_t>(mixed) >> 16) * kOnes) & tag_bits;
        // SWAR zero test: a zero lane of 16 bits has its highest bit set; lanes above the lowest such
        // lane may be false positives.
        const std::uint64_t is_free = (four - kOnes) & ~four & kHighs;
        const std::uint64_t is_same = (other - kOnes) & ~other & kHighs;
        const auto lane =
            static_cast<std::uint32_t>(std::countr_zero(is_same | std::uint64_t{1} << 63)) & 48U;
        const auto row = static_cast<std::uint32_t>((four >> lane & ~tag_bits & 0xFFFF) - 1);
        const bool is_present = (is_same != 0) & (row < c);
        return {row, is_present, static_cast<bool>(!is_present & (is_free == 0))};
    }

  private:
    static constexpr std::uint64_t kOnes = 0x0001000100010001ULL, kHighs = 0x8000800080008000ULL;
    // Mask of the tag bits in each of four slots, by row bits.
    static constexpr std::array<std::uint64_t, 33> kTagBits = [] {
        std::array<std::uint64_t, 33> of{};
        for (std::uint32_t bits = 0; bits < 16; ++bits) of[bits] = (0xFFFFU >> bits << bits) * kOnes;
        return of;
    }();
};

class HashedLayout {
  public:
    explicit HashedLayout(std::shared_ptr<ModelFile> file);  // throws Error if the file has another layout

    const ModelFile& file() const { return *file_; }
    std::size_t order() const { return orders_.size(); }
    std::uint32_t size(std::size_t order) const { return orders_[order - 1].size; }

    Lookup first(std::uint32_t word) const { return row_values(1, word); }
    void prefetch(std::size_t order, Children in, std::uint32_t word) const;
    // Second hint: the row that the index points to.
    void prefetch_row(std::size_t order, Children in, std::uint32_t word) const;
    Lookup find(std::size_t order, Children in, std::uint32_t word) const {
        const std::uint32_t row = order == orders_.size() ? row_of(orders_[order - 1].top, order, in, word)
                                                          : row_of(orders_[order - 1].rows, order, in, word);
        return row == kNone ? Lookup{} : row_values(order, row);
    }
    Lookup at(std::size_t order, std::uint32_t row, std::uint32_t& word) const;

    // Word ids by descending unigram probability, ties by ascending id.
    std::span<const std::uint32_t> by_probability() const;

    // Unchecked access, for callers that have verified the file.
    const std::uint16_t* slots_of(std::size_t order, Children in) const {
        return reinterpret_cast<const std::uint16_t*>(orders_[order - 1].index + std::size_t{4} * in.from);
    }
    const HashedRow* row(std::size_t order, std::uint32_t row) const { return orders_[order - 1].rows + row; }
    const HashedTopRow* top_row(std::uint32_t row) const { return orders_.back().top + row; }

  private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    struct Order {
        const HashedRow* rows = nullptr;  // null at the highest order
        const HashedTopRow* top = nullptr;
        const char* index = nullptr;  // null at order 1
        std::uint32_t size = 0;
    };

    template <class Row>
    std::uint32_t row_of(const Row* rows, std::size_t order, Children in, std::uint32_t word) const;
    template <class Row>
    std::uint32_t row_by_directory(const Row* rows, std::size_t order, Children in, std::uint32_t word) const;
    Lookup row_values(std::size_t order, std::uint32_t row) const;

    std::shared_ptr<ModelFile> file_;
    std::vector<Order> orders_;
    std::span<const std::uint32_t> by_probability_;
};

// Sections of the rows, which must outlive them.
std::vector<Section> hashed_sections(const Rows& rows, const FileMetadata& metadata);
Section by_probability_section(const Rows& rows);  // included in hashed_sections

// Reads the values of a row.
inline Lookup HashedLayout::row_values(std::size_t order, std::uint32_t row) const {
    const Order& level = orders_[order - 1];
    if (order == orders_.size()) {
        file_->touch(level.top + row, sizeof(HashedTopRow));
        return {true, row, level.top[row].log_prob, 0, {}};
    }
    const HashedRow* const at = level.rows + row;
    file_->touch(at, 2 * sizeof(HashedRow));
    return {true, row, at->log_prob, at->log_backoff, {at[0].first, at[1].first}};
}

inline Lookup HashedLayout::at(std::size_t order, std::uint32_t row, std::uint32_t& word) const {
    const Lookup lookup = row_values(order, row);
    word = order == orders_.size() ? orders_[order - 1].top[row].word : orders_[order - 1].rows[row].word;
    return lookup;
}

template <class Row>
std::uint32_t HashedLayout::row_of(const Row* rows, std::size_t order, Children in,
                                   std::uint32_t word) const {
    const std::uint32_t c = in.size();
    if (c >= kMinSorted) return row_by_directory(rows, order, in, word);
    const std::uint16_t* const slots = slots_of(order, in);
    const std::uint64_t mixed = ChildHash::mix(word);
    const std::uint32_t bits = ChildHash::bits(c), tag = ChildHash::tag(bits, mixed), end = 2 * c;
    std::uint32_t slot = ChildHash::home(c, mixed);
    for (std::uint32_t looked = 0; looked < end; ++looked, slot = slot + 1 == end ? 0 : slot + 1) {
        file_->touch(slots + slot, 2);
        const std::uint32_t value = slots[slot];
        if (value == 0) return kNone;
        const std::uint32_t at = (value & ((1U << bits) - 1)) - 1;
        if (value >> bits << bits != tag || at >= c) continue;
        const std::uint32_t row = in.from + at;
        file_->touch(rows + row, sizeof(Row));
        if (rows[row].word == word) return row;
    }
    return kNone;
}

inline void HashedLayout::prefetch(std::size_t order, Children in, std::uint32_t word) const {
    const std::uint32_t c = in.size();
    if (c == 0) return;
    const char* const index = orders_[order - 1].index + std::size_t{4} * in.from;
    chainrule::prefetch(index + (c < kMinSorted ? 2 * ChildHash::home(c, ChildHash::mix(word))
                                                : 4 * directory_slot(word, c, orders_.front().size)));
}

inline void HashedLayout::prefetch_row(std::size_t order, Children in, std::uint32_t word) const {
    const std::uint32_t c = in.size();
    if (c == 0 || c >= kMinSorted || !file_->is_verified()) return;
    const std::uint64_t mixed = ChildHash::mix(word);
    const ChildHash::Probe probe =
        ChildHash::probe_slots(slots_of(order, in) + ChildHash::home(c, mixed), c, mixed);
    if (!probe.is_present) return;
    if (order < orders_.size()) {
        chainrule::prefetch(row(order, in.from + probe.row));
        chainrule::prefetch(row(order, in.from + probe.row + 1));
    } else {
        chainrule::prefetch(top_row(in.from + probe.row));
    }
}

}  // namespace chainrule
