// The layout "fast": plain rows, and per order an index to find a word among many. At most 20 bytes a row, 12
// at the highest order.
//
// Up to 8 continuations of a context are looked through: they lie on one to three cache lines. More have an
// index of their own, in the 4 bytes that each row has in the section of indexes, so that where it lies
// follows from where the rows do:
// - c < 2^16 continuations have 2c slots of 16 bits, half of them used (open addressing, wrapped within the
//   2c). A slot is 0, or b = ⌈log2(c + 1)⌉ bits of the row, counted from 1 within the context, below 16 − b
//   bits of a hash of the word: a word that is not there is mostly known not to be without a look at rows.
// - more have c numbers of 32 bits: behind how many rows the words from j V / c on begin.
// Any bits in an index lead to a row of the same context or to none, so that only rows need a check of
// content.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ngram_fast_sections.hpp"
#include "ngram_file.hpp"
#include "ngram_layout.hpp"
#include "prefetch.hpp"

namespace chainrule {

struct FastRow {
    std::uint32_t word;
    float log_prob, log_backoff;
    std::uint32_t first;  // where its continuations begin; they end where those of the next row begin
};

struct FastTopRow {  // of the highest order
    std::uint32_t word;
    float log_prob;
};

inline constexpr std::uint32_t kScanned = 8;        // continuations without an index
inline constexpr std::uint32_t kHashed = 1U << 16;  // from here on they are found by order, not by hash

// Where a word may be among the 2c slots of c continuations.
struct FastHash {
    std::uint32_t slots, bits, slot, tag;

    FastHash(std::uint32_t c, std::uint32_t word)
        : slots(2 * c), bits(static_cast<std::uint32_t>(std::bit_width(c))) {
        const std::uint64_t mixed = word * 0x9E3779B97F4A7C15ULL;
        slot = static_cast<std::uint32_t>(((mixed >> 32) * slots) >> 32);
        tag = (static_cast<std::uint32_t>(mixed) >> 16) & (0xFFFFU >> bits);
    }
    bool may_be(std::uint32_t value) const { return value != 0 && value >> bits == tag; }
    std::uint32_t row(std::uint32_t value) const {
        return (value & ((1U << bits) - 1)) - 1;
    }  // in the context
    void next() { slot = slot + 1 == slots ? 0 : slot + 1; }
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

  private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    struct Order {
        const FastRow* rows = nullptr;  // null at the highest order
        const FastTopRow* top = nullptr;
        const char* index = nullptr;  // null at order 1
        std::uint32_t size = 0;
    };

    const std::uint16_t* slots_of(std::size_t order, Children in) const {
        return reinterpret_cast<const std::uint16_t*>(orders_[order - 1].index + std::size_t{4} * in.from);
    }
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
    if (c <= kScanned) {
        file_->touch(rows + in.from, c * sizeof(Row));
        for (std::uint32_t row = in.from; row < in.to; ++row)
            if (rows[row].word == word) return row;
        return kNone;
    }
    if (c >= kHashed) return row_by_order(rows, order, in, word);
    const std::uint16_t* const slots = slots_of(order, in);
    FastHash hash(c, word);
    for (std::uint32_t looked = 0; looked < hash.slots; ++looked, hash.next()) {
        file_->touch(slots + hash.slot, 2);
        const std::uint16_t value = slots[hash.slot];
        if (value == 0) return kNone;
        if (!hash.may_be(value) || hash.row(value) >= c) continue;
        const std::uint32_t row = in.from + hash.row(value);
        file_->touch(rows + row, sizeof(Row));
        if (rows[row].word == word) return row;
    }
    return kNone;
}

inline void FastLayout::prefetch(std::size_t order, Children in, std::uint32_t word) const {
    const std::uint32_t c = in.size();
    if (c == 0) return;
    if (c > kScanned) {
        const char* const index = orders_[order - 1].index + std::size_t{4} * in.from;
        const std::size_t at =
            c < kHashed ? 2 * FastHash(c, word).slot : 4 * directory_slot(word, c, orders_.front().size);
        chainrule::prefetch(index + at);
    } else if (order < orders_.size()) {
        // Where a row's continuations end stands in the row behind it.
        const FastRow* const rows = orders_[order - 1].rows + in.from;
        chainrule::prefetch(rows);
        chainrule::prefetch(rows + (c < 4 ? c : 4));
    } else {
        const FastTopRow* const rows = orders_[order - 1].top + in.from;
        chainrule::prefetch(rows);
        chainrule::prefetch(rows + c - 1);
    }
}

inline void FastLayout::prefetch_row(std::size_t order, Children in, std::uint32_t word) const {
    const std::uint32_t c = in.size();
    if (c <= kScanned || c >= kHashed) return;
    const FastHash hash(c, word);
    const std::uint16_t value = slots_of(order, in)[hash.slot];  // not verified: good enough for a hint
    if (!hash.may_be(value) || hash.row(value) >= c) return;
    const Order& here = orders_[order - 1];
    const std::uint32_t row = in.from + hash.row(value);
    if (here.rows) {
        chainrule::prefetch(here.rows + row);
        chainrule::prefetch(here.rows + row + 1);
    } else {
        chainrule::prefetch(here.top + row);
    }
}

}  // namespace chainrule
