// What the reader and the writer of the layout "fast" must agree on.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/prefetch.hpp"
#include "ngram/format/layout.hpp"
#include "ngram/format/model_file.hpp"

namespace chainrule {

inline constexpr std::uint32_t kFastRows = 0x1000, kFastIndex = 0x2000;  // + the order

// Of an index: four slots may be read from anywhere in it.
inline std::uint64_t fast_index_bytes(std::uint64_t rows) { return 4 * rows + 8; }

// Of c continuations in order of their words, where the directory is asked for `word`.
inline std::uint32_t directory_slot(std::uint32_t word, std::uint32_t c, std::uint32_t vocabulary) {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(word) * c / vocabulary);
}

// The layout "fast": plain rows, and per order an index to find a word among many. At most 20 bytes a row, 12
// at the highest order.
//
// The continuations of a context have an index of their own, in the 4 bytes that each row has in the section
// of indexes, so that where it lies follows from where the rows do:
// - c < 2^16 continuations have 2c slots of 16 bits, half of them used (open addressing, wrapped within the
//   2c). A slot is 0, or b = ⌈log2(c + 1)⌉ bits of the row, counted from 1 within the context, below 16 − b
//   bits of a hash of the word: a word that is not there is mostly known not to be without a look at rows.
// - more have c numbers of 32 bits: behind how many rows the words from j V / c on begin.
// Any bits in an index lead to a row of the same context or to none, so that only rows need a check of
// content.

struct FastRow {
    std::uint32_t word;
    float log_prob, log_backoff;
    std::uint32_t first;  // where its continuations begin; they end where those of the next row begin
};

struct FastTopRow {  // of the highest order
    std::uint32_t word;
    float log_prob;
};

inline constexpr std::uint32_t kHashed = 1U << 16;  // from here on they are found by order, not by hash

// The slots of c continuations, and where in them a word may be. A word lies in the first free slot from its
// home on; most lie within four of it, which are looked at at once.
struct FastHash {
    static std::uint64_t mix(std::uint32_t word) { return word * 0x9E3779B97F4A7C15ULL; }
    // Four slots from there on are this context's, where it has as many.
    static std::uint32_t home(std::uint32_t c, std::uint64_t mixed) {
        const std::int64_t homes = std::max<std::int64_t>(2 * std::int64_t{c} - 3, 1);
        return static_cast<std::uint32_t>(((mixed >> 32) * static_cast<std::uint64_t>(homes)) >> 32);
    }
    static std::uint32_t bits(std::uint32_t c) { return static_cast<std::uint32_t>(std::bit_width(c)); }
    // A slot's value: these bits, and below them the row, counted from 1.
    static std::uint32_t tag(std::uint32_t bits, std::uint64_t mixed) {
        return (static_cast<std::uint32_t>(mixed) >> 16) >> bits << bits;
    }

    struct Seen {
        std::uint32_t row;  // within the context
        bool is_there;      // a slot has the word's tag
        bool is_unsure;     // these four slots do not say
    };
    // What the four slots from the word's home on say, of 1 to 2^16 − 1 continuations.
    static Seen look(const std::uint16_t* home, std::uint32_t c, std::uint64_t mixed) {
        const std::uint64_t tag_bits = kTagBits[static_cast<std::size_t>(std::bit_width(c | 1))];
        std::uint64_t four;
        std::memcpy(&four, home, 8);
        const std::uint64_t other = (four ^ (static_cast<std::uint32_t>(mixed) >> 16) * kOnes) & tag_bits;
        // A lane of 16 bits that is 0 has its highest bit set here; above the lowest such lane others may,
        // too.
        const std::uint64_t is_free = (four - kOnes) & ~four & kHighs;
        const std::uint64_t is_same = (other - kOnes) & ~other & kHighs;
        const auto lane =
            static_cast<std::uint32_t>(std::countr_zero(is_same | std::uint64_t{1} << 63)) & 48U;
        const auto row = static_cast<std::uint32_t>((four >> lane & ~tag_bits & 0xFFFF) - 1);
        const bool is_there = (is_same != 0) & (row < c);
        return {row, is_there, static_cast<bool>(!is_there & (is_free == 0))};
    }

  private:
    static constexpr std::uint64_t kOnes = 0x0001000100010001ULL, kHighs = 0x8000800080008000ULL;
    // By bits of a row: those of the tag, in each of four slots.
    static constexpr std::array<std::uint64_t, 33> kTagBits = [] {
        std::array<std::uint64_t, 33> of{};
        for (std::uint32_t bits = 0; bits < 16; ++bits) of[bits] = (0xFFFFU >> bits << bits) * kOnes;
        return of;
    }();
};

class FastLayout {
  public:
    explicit FastLayout(std::shared_ptr<ModelFile> file);  // Failure where it is of another layout

    const ModelFile& file() const { return *file_; }
    std::size_t order() const { return orders_.size(); }
    std::uint32_t size(std::size_t order) const { return orders_[order - 1].size; }

    Found first(std::uint32_t word) const { return found(1, word); }
    void prefetch(std::size_t order, Children in, std::uint32_t word) const;
    // The second hint, when the first has had its time: the row, where the index leads to one.
    void prefetch_row(std::size_t order, Children in, std::uint32_t word) const;
    Found find(std::size_t order, Children in, std::uint32_t word) const {
        const std::uint32_t row = order == orders_.size() ? row_of(orders_[order - 1].top, order, in, word)
                                                          : row_of(orders_[order - 1].rows, order, in, word);
        return row == kNone ? Found{} : found(order, row);
    }
    Found at(std::size_t order, std::uint32_t row, std::uint32_t& word) const;

    // Word numbers by falling probability without context, by rising number among equals.
    std::span<const std::uint32_t> by_probability() const;

    // For those who have verified what they read.
    const std::uint16_t* slots_of(std::size_t order, Children in) const {
        return reinterpret_cast<const std::uint16_t*>(orders_[order - 1].index + std::size_t{4} * in.from);
    }
    const FastRow* row(std::size_t order, std::uint32_t row) const { return orders_[order - 1].rows + row; }
    const FastTopRow* top_row(std::uint32_t row) const { return orders_.back().top + row; }

  private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    struct Order {
        const FastRow* rows = nullptr;  // null at the highest order
        const FastTopRow* top = nullptr;
        const char* index = nullptr;  // null at order 1
        std::uint32_t size = 0;
    };

    template <class Row>
    std::uint32_t row_of(const Row* rows, std::size_t order, Children in, std::uint32_t word) const;
    template <class Row>
    std::uint32_t row_by_order(const Row* rows, std::size_t order, Children in, std::uint32_t word) const;
    Found found(std::size_t order, std::uint32_t row) const;

    std::shared_ptr<ModelFile> file_;
    std::vector<Order> orders_;
    std::span<const std::uint32_t> by_probability_;
};

// Sections of the rows, which must outlive them.
std::vector<Section> fast_sections(const Rows& rows, const FileFacts& facts);
Section by_probability_section(const Rows& rows);  // is among those of fast_sections

// Where the row is there already, its numbers.
inline Found FastLayout::found(std::size_t order, std::uint32_t row) const {
    const Order& here = orders_[order - 1];
    if (order == orders_.size()) {
        file_->touch(here.top + row, sizeof(FastTopRow));
        return {true, row, here.top[row].log_prob, 0, {}};
    }
    const FastRow* const at = here.rows + row;
    file_->touch(at, 2 * sizeof(FastRow));
    return {true, row, at->log_prob, at->log_backoff, {at[0].first, at[1].first}};
}

inline Found FastLayout::at(std::size_t order, std::uint32_t row, std::uint32_t& word) const {
    const Found there = found(order, row);
    word = order == orders_.size() ? orders_[order - 1].top[row].word : orders_[order - 1].rows[row].word;
    return there;
}

template <class Row>
std::uint32_t FastLayout::row_of(const Row* rows, std::size_t order, Children in, std::uint32_t word) const {
    const std::uint32_t c = in.size();
    if (c >= kHashed) return row_by_order(rows, order, in, word);
    const std::uint16_t* const slots = slots_of(order, in);
    const std::uint64_t mixed = FastHash::mix(word);
    const std::uint32_t bits = FastHash::bits(c), tag = FastHash::tag(bits, mixed), end = 2 * c;
    std::uint32_t slot = FastHash::home(c, mixed);
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

inline void FastLayout::prefetch(std::size_t order, Children in, std::uint32_t word) const {
    const std::uint32_t c = in.size();
    if (c == 0) return;
    const char* const index = orders_[order - 1].index + std::size_t{4} * in.from;
    chainrule::prefetch(index + (c < kHashed ? 2 * FastHash::home(c, FastHash::mix(word))
                                             : 4 * directory_slot(word, c, orders_.front().size)));
}

inline void FastLayout::prefetch_row(std::size_t order, Children in, std::uint32_t word) const {
    const std::uint32_t c = in.size();
    if (c == 0 || c >= kHashed || !file_->is_verified()) return;
    const std::uint64_t mixed = FastHash::mix(word);
    const FastHash::Seen seen = FastHash::look(slots_of(order, in) + FastHash::home(c, mixed), c, mixed);
    if (!seen.is_there) return;
    if (order < orders_.size()) {
        chainrule::prefetch(row(order, in.from + seen.row));
        chainrule::prefetch(row(order, in.from + seen.row + 1));
    } else {
        chainrule::prefetch(top_row(in.from + seen.row));
    }
}

}  // namespace chainrule
