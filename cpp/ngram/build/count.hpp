// Word numbers as the tokens that n-grams are counted over: each line becomes <s> w … w </s>, an empty one
// too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "ngram/vocabulary.hpp"

namespace chainrule {

struct Tokens {
    Array<std::uint32_t> ids;  // with <s> wherever nothing may be read across
    std::uint32_t vocabulary = 0;
    std::uint32_t begin = kBegin, end = kEnd;
    bool is_stream = false;  // <s> once, and lines go on from the one before
    std::uint64_t lines = 0;
};

// Numbers below `vocabulary` with `end` after each line and no `begin` anywhere, as counts.py takes them.
Tokens take_ids(std::span<const std::int32_t> ids, std::uint32_t vocabulary, std::uint32_t begin,
                std::uint32_t end, bool is_stream);

// Every n-gram of a text up to an order, in tables sorted by context, then by word: counts.py, with the
// counts of continuations of smoothing.py, which cost next to nothing here.
//
// How: an occurrence of an n-gram is (where it begins, the row of its suffix w_2…w_n). Occurrences of order n
// that are sorted by n-gram become those of order n + 1 by one stable counting sort by the word to the left:
// within one left word they stay sorted by what follows. A pass is one gather and one scatter over as many
// places as there are words, and few words are most of a text. What else a table needs comes from reading
// along:
// - the suffix is what the sort carried;
// - the context: contexts are sorted as their n-grams are, so each has the next so many occurrences as it was
//   counted;
// - the continuations, different words to the left: the words gathered for the occurrences of a row.
// Rows are numbered by what is in them, and so the same whatever the threads.

// All n-grams of one order. At order 1 the row is the word's number, and every word has a row.
struct Level {
    Array<std::uint32_t> word;    // w_n
    Array<std::uint32_t> suffix;  // row of w_2…w_n one order down; empty at order 1
    Array<std::uint32_t> count;   // how often it stands in the text; 0 of <s>
    // How many different words stand to its left, or the count where it begins with <s>: nothing can stand
    // there. Empty at the highest order, where it is the count.
    Array<std::uint32_t> continuation;
    // Of each row one order down, the context, where its n-grams begin here; one more, where the last ones
    // end. At order 1 the one context is the empty one.
    Array<std::uint32_t> first;
    // The rows that begin with <s>: they are side by side.
    std::uint32_t begins_from = 0, begins_to = 0;

    std::size_t size() const { return word.size(); }
    // What Kneser–Ney takes for counts.
    const Array<std::uint32_t>& adjusted() const { return continuation.size() ? continuation : count; }
};

struct Counts {
    std::vector<Level> levels;  // [k] is of order k + 1
    std::uint32_t vocabulary = 0, begin = 0, end = 0;

    std::size_t order() const { return levels.size(); }
};

// Throws Failure where the order is 0, or memory does not suffice. The tokens are let go as soon as nothing
// needs them.
Counts count_ngrams(Tokens tokens, std::size_t order, std::size_t threads);

}  // namespace chainrule
