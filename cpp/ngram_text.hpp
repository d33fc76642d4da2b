// Text, or word numbers that somebody else made, as the tokens that n-grams are counted over.
//
// Words are cut at blanks and tabs, lines at line ends, as words.cpp does; each line becomes <s> w … w </s>,
// an empty one too unless it is to be dropped. A word of the text that is spelled <unk> is <unk>. One that is
// spelled <s> or </s> would break lines that are none: it is read as <unk>, and counted for the caller to
// tell.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ngram_vocabulary.hpp"
#include "unset_array.hpp"

namespace chainrule {

struct Tokens {
    Array<std::uint32_t> ids;  // with <s> wherever nothing may be read across
    std::uint32_t vocabulary = 0;
    std::uint32_t begin = kBegin, end = kEnd;
    bool is_stream = false;  // <s> once, and lines go on from the one before
    std::uint64_t lines = 0;
    std::uint64_t controls = 0;  // words spelled <s> or </s>
};

struct TextOptions {
    bool drop_empty_lines = false;
    std::size_t threads = 1;
};

// Adds the words of the text to `vocabulary`, numbered as they first appear whatever the threads.
Tokens read_text(std::string_view text, Vocabulary& vocabulary, const TextOptions& options);

// The same with a vocabulary that stays as it is: other words are <unk>.
Tokens read_known(std::string_view text, const Vocabulary& vocabulary, const TextOptions& options);

// Numbers below `vocabulary` with `end` after each line and no `begin` anywhere, as counts.py takes them.
Tokens take_ids(std::span<const std::int32_t> ids, std::uint32_t vocabulary, std::uint32_t begin,
                std::uint32_t end, bool is_stream);

}  // namespace chainrule
