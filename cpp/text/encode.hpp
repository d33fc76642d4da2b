// A plain text as word ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "text/lines.hpp"
#include "text/punctuation.hpp"
#include "text/word_table.hpp"

namespace chainrule {

// How much text there is, eight bytes at a time: what must be known before the first id is written.
struct Extent {
    std::uint64_t words = 0, lines = 0;
    std::uint64_t letters = 0, characters = 0;  // of words: bytes, and characters

    std::uint64_t tokens() const { return words + lines; }
};

// Of lines with an LF after each.
Extent extent_of(std::string_view lines);

// What words become.
struct Coding {
    WordTable words;
    std::vector<std::int32_t> ids;  // by number in `words`
    std::int32_t unknown, end;      // the id of other words, and of the end of a line
    Splitting splitting = {};
};

// What encode.py's Tally counts: as if words stood one blank apart, with one LF after each line.
struct Measures {
    std::uint64_t words = 0, lines = 0, characters = 0, bytes = 0;
};

struct EncodedText {
    Measures measures;
    Array<std::int32_t> ids;  // empty where a file has them
    // How the words with the unknown id are spelled, in their order: a table, and a number there.
    std::vector<WordTable> spelled;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> spellings;
};

// Ids with `end` after each line, into an array, or into `file` where that has a name. Nothing where the text
// is not plain; then there is no file either, or an unfinished one.
std::optional<EncodedText> encode_words(const PlainText& text, const Coding& coding, const std::string& file,
                                        std::size_t threads);

}  // namespace chainrule
