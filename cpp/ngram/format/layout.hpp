// The interface between a model file layout and the queries.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace chainrule {

// Range of the rows of one order that extend a context one order down.
struct Children {
    std::uint32_t from = 0, to = 0;

    std::uint32_t size() const { return to > from ? to - from : 0; }
};

// Result of looking up an n-gram.
struct Lookup {
    bool is_present = false;
    std::uint32_t row = 0;
    float log_prob = 0;
    float log_backoff = 0;  // 0 at the highest order
    Children children;      // one order up; none at the highest order
};

// The interface that queries need of a layout (HashedLayout, CompactLayout). Members are const and
// thread-safe; orders count from 1. Values are read only from blocks whose checksum was verified; a damaged
// block throws Error. Word ids are below the vocabulary size, and `children` comes from an earlier Lookup.
template <class L>
concept NgramLayout = requires(const L& layout, std::size_t order, Children children, std::uint32_t word,
                               std::uint32_t row, std::uint32_t& word_of_row) {
    { layout.first(word) } -> std::same_as<Lookup>;                  // the unigram, always present
    { layout.find(order, children, word) } -> std::same_as<Lookup>;  // the row of `word` among `children`
    { layout.at(order, row, word_of_row) } -> std::same_as<Lookup>;  // a row by number, and its word
    layout.prefetch(order, children, word);                          // hint: find() follows soon
    layout.prefetch_row(order, children, word);  // second hint, once the first has taken effect
};

}  // namespace chainrule
