// N-gram counts of a text, for all orders up to n.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "ngram/vocabulary.hpp"

namespace chainrule {

struct Tokens {
    UninitializedBuffer<std::uint32_t> ids;  // with <s> at every line boundary
    std::uint32_t vocabulary = 0;
    std::uint32_t begin = kBegin, end = kEnd;
    bool is_stream = false;  // one <s>; n-grams cross line boundaries
    std::uint64_t lines = 0;
};

// Adds <s> to word ids below `vocabulary` with `end` after each line and no `begin`: each line becomes <s> w
// … w </s>, including empty lines.
Tokens make_tokens(std::span<const std::int32_t> ids, std::uint32_t vocabulary, std::uint32_t begin,
                   std::uint32_t end, bool is_stream);

// Counting by repeated stable counting sort (no hash tables).
//
// An occurrence of an n-gram is (position of its first word, row of its suffix w_2…w_n). Occurrences of order
// n sorted by n-gram become those of order n + 1 by one stable counting sort by the word to the left. Each
// pass is one gather and one scatter over the tokens. The other columns follow from a sequential scan:
// - suffix: carried along by the sort;
// - context: contexts are sorted like their n-grams, so each context owns the next `count` occurrences;
// - continuation count: the distinct left words gathered for the occurrences of a row.
// Rows do not depend on the number of threads.

// All n-grams of one order. At order 1 the row number is the word id, and every word has a row.
struct Level {
    UninitializedBuffer<std::uint32_t> word;    // w_n
    UninitializedBuffer<std::uint32_t> suffix;  // row of w_2…w_n one order down; empty at order 1
    UninitializedBuffer<std::uint32_t> count;   // occurrences in the text; 0 for <s>
    // Number of distinct words to the left (the continuation count), or the plain count for n-grams that
    // begin with <s>. Empty at the highest order, where the plain count is used.
    UninitializedBuffer<std::uint32_t> continuation;
    // For each context (row one order down), the index of its first n-gram here, and one entry more for
    // the end. At order 1 the only context is the empty one.
    UninitializedBuffer<std::uint32_t> first;
    // Range of rows that begin with <s>.
    std::uint32_t begins_from = 0, begins_to = 0;

    std::size_t size() const { return word.size(); }
    // The adjusted counts of Kneser–Ney: continuation counts, plain counts at the highest order.
    const UninitializedBuffer<std::uint32_t>& adjusted() const {
        return continuation.size() ? continuation : count;
    }
};

struct Counts {
    std::vector<Level> levels;  // [k] is of order k + 1
    std::uint32_t vocabulary = 0, begin = 0, end = 0;

    std::size_t order() const { return levels.size(); }
};

// Throws Error if the order is 0 or memory does not suffice. The tokens are released as soon as they are no
// longer needed.
Counts count_ngrams(Tokens tokens, std::size_t order, std::size_t threads);

}  // namespace chainrule
