// Encodes plain text files as word ids in a file, with the vocabulary known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// Counts as if words were separated by one blank and each line ended with one LF (TextCounts of encode.py).
struct TextCounts {
    std::uint64_t words = 0, lines = 0, characters = 0, bytes = 0;

    // `filled`: number of non-empty lines.
    void add(const TextSize& size, std::uint64_t filled) {
        const std::uint64_t between = size.words + size.lines - filled;
        add({size.words, size.lines, size.characters + between, size.letters + between});
    }
    void add(const TextCounts& other) {
        words += other.words;
        lines += other.lines;
        characters += other.characters;
        bytes += other.bytes;
    }
};

struct EncodedFile {
    TextCounts sizes;
    // Spellings of unknown words in text order: (table, number in the table).
    std::vector<WordTable> spelled;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> spellings;
};

// Writes ids with `end` after each line to `file` as int32, in memory that does not grow with the text.
// Returns nothing if the text is not plain; the file is then missing or incomplete.
std::optional<EncodedFile> encode_words(const PlainText& text, const WordEncoding& encoding,
                                        const std::string& file, std::size_t threads);

}  // namespace chainrule
