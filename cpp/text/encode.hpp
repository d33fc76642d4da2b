// Encodes plain text files as word ids.
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

// Size of a text, measured before the first id is written.
struct TextSize {
    std::uint64_t words = 0, lines = 0;
    std::uint64_t letters = 0, characters = 0;  // bytes and characters of all words

    std::uint64_t tokens() const { return words + lines; }
};

// Measures lines that end with LF.
TextSize measure_text(std::string_view lines);

// Mapping from words to ids.
struct WordEncoding {
    WordTable words;
    std::vector<std::int32_t> ids;  // by number in `words`
    std::int32_t unknown, end;      // ids of unknown words and of the end of a line
    Splitting splitting = {};
};

// Counts as if words were separated by one blank and each line ended with one LF (Tally of encode.py).
struct TextCounts {
    std::uint64_t words = 0, lines = 0, characters = 0, bytes = 0;
};

struct EncodedText {
    TextCounts measures;
    UninitializedBuffer<std::int32_t> ids;  // empty if written to a file
    // Spellings of unknown words in text order: (table, number in the table).
    std::vector<WordTable> spelled;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> spellings;
};

// Returns ids with `end` after each line, in an array or written to `file` if it is not empty. Returns
// nothing if the text is not plain; the file is then missing or incomplete.
std::optional<EncodedText> encode_words(const PlainText& text, const WordEncoding& encoding,
                                        const std::string& file, std::size_t threads);

}  // namespace chainrule
