// What queries ask of a model file, whatever its layout.
#pragma once

#include <cstdint>

namespace chainrule {

// Rows of one order that continue a context one order down.
struct Children {
    std::uint32_t from = 0, to = 0;

    std::uint32_t size() const { return to > from ? to - from : 0; }
};

// An n-gram that was looked for.
struct Found {
    bool is_there = false;
    std::uint32_t row = 0;
    float log_prob = 0;
    float log_backoff = 0;  // 0 at the highest order
    Children children;      // one order up; none at the highest order
};

// A layout (FastLayout, SmallLayout) is a class with these members, all const and safe on several threads at
// once. Orders count from 1. No number is handed out from a block whose checksum was not verified; a block
// that is not whole throws Failure. Words that are asked for are below the vocabulary's size; children are
// what a Found had.
//
//   Found first(std::uint32_t word) const;                            // the unigram, always there
//   void prefetch(std::size_t order, Children in, std::uint32_t word) const;   // a hint that find comes soon
//   Found find(std::size_t order, Children in, std::uint32_t word) const;      // the row of `word` among
//   `in` Found at(std::size_t order, std::uint32_t row, std::uint32_t& word) const;  // a row by number, and
//   its word:
//                                                                     // to list what continues a context

}  // namespace chainrule
