// Word numbers as the tokens that n-grams are counted over: each line becomes <s> w … w </s>, an empty one
// too.
#pragma once

#include <cstdint>
#include <span>

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

}  // namespace chainrule
