// Encodes texts as word ids. With a known vocabulary: into memory (`encode_text`) or, in bounded
// memory, into a file (`encode_words`). Without one: `scan_text` counts and numbers the words in one pass,
// and the vocabulary chosen from the counts then encodes them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "text/input/text_reader.hpp"
#include "text/line_sketch.hpp"
#include "text/punctuation.hpp"
#include "text/vocabulary.hpp"
#include "text/word_counting.hpp"
#include "text/word_table.hpp"
#include "text/words.hpp"

namespace chainrule {

// Size of a text, measured before the first id is written.
struct TextSize {
    std::uint64_t words = 0, lines = 0;
    std::uint64_t letters = 0, characters = 0;  // bytes and characters of all words

    std::uint64_t tokens() const { return words + lines; }
    void add(const TextSize& other) {
        words += other.words;
        lines += other.lines;
        letters += other.letters;
        characters += other.characters;
    }
};

// Measures lines that end with LF.
TextSize measure_text(std::string_view lines);

// Mapping from words to ids.
struct WordEncoding {
    std::shared_ptr<const WordVocabulary> vocabulary;
    std::int32_t unknown, end;  // ids of unknown words and of the end of a line
    Splitting splitting = {};

    std::int32_t find(const Word& word) const {
        const std::uint32_t id = vocabulary->find(word);
        return id == WordVocabulary::kNone ? unknown : static_cast<std::int32_t>(id);
    }
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

struct EncodedWords {
    TextCounts sizes;
    // Spellings of unknown words in text order: (table, number in the table).
    std::vector<WordTable> spelled;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> spellings;
    Sketch sketch;
};

struct EncodedText : EncodedWords {
    UninitializedBuffer<std::int32_t> ids;  // `end` after each line
};

// Encodes a text in one pass. Returns nothing if a line is too long.
std::optional<EncodedText> encode_text(TextReader& text, const WordEncoding& encoding,
                                       const SketchSize& sketch, std::size_t threads,
                                       const OnLines& on_lines = {});

// Encodes lines in memory, each ending with LF; no sketch.
EncodedText encode_lines(std::string_view lines, const WordEncoding& encoding);

// Counts the words of a text. False, with some words counted, if a line, or a word of a vocabulary, is too
// long.
bool count_words(TextReader& text, const Splitting& splitting, std::size_t threads, WordCounting& counts);

// Sizes of parts of a text, and their vocabulary, from which those of the text are extrapolated.
class TextSample {
  public:
    explicit TextSample(Splitting splitting) : splitting_(std::move(splitting)) {}

    void add(std::string_view lines);

    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t tokens() const { return tokens_; }
    std::uint64_t types() const { return counter_.counts.size(); }
    std::uint64_t types_with(std::uint64_t min_count) const;

  private:
    Splitting splitting_;
    WordCounter counter_;
    std::string buffer_;
    std::uint64_t bytes_ = 0, tokens_ = 0;
};

// Writes ids with `end` after each line to `file` as int32, in memory that does not grow with the text, and
// counts the spellings of unknown words in `spelled`. Returns nothing if a line is too long; the file is then
// incomplete.
std::optional<EncodedWords> encode_words(TextReader& text, const WordEncoding& encoding,
                                         const std::string& file, const SketchSize& sketch,
                                         std::size_t threads, WordCounting& spelled,
                                         const OnLines& on_lines = {});

// One scan of a text: sizes, word counts, line sketch, and the words in text order. A vocabulary chosen from
// the counts then encodes the text without reading it again.

// Ids of a text with the id `end` after each line.
struct ScannedIds {
    UninitializedBuffer<std::int32_t> ids;
    std::vector<std::uint32_t> unknown;  // numbers of the unknown words in text order
};

class TextScan {
  public:
    TextScan() = default;
    TextScan(TextScan&&) = default;
    TextScan& operator=(TextScan&&) = default;

    const WordCounts& words() const { return words_; }
    const TextCounts& sizes() const { return sizes_; }
    const Sketch& sketch() const { return sketch_; }

    // Encodes the text; `ids` by word number. Releases the stored words: a second call throws ArgumentError.
    ScannedIds encode(std::span<const std::int32_t> ids, std::int32_t unknown, std::int32_t end,
                      std::size_t threads);

  private:
    // The words of a piece, numbered by the thread that read it; kLineEnd after each line.
    struct Piece {
        UninitializedBuffer<std::uint32_t> numbers;
        std::size_t thread = 0;
    };
    static constexpr std::uint32_t kLineEnd = WordTable::kNone;

    friend std::optional<TextScan> scan_text(TextReader&, const Splitting&, const SketchSize&, std::size_t,
                                             const OnLines&);

    WordCounts words_;
    TextCounts sizes_;
    Sketch sketch_;
    std::vector<Piece> pieces_;
    std::vector<std::vector<std::uint32_t>> numbers_of_thread_;  // number in a thread -> number in words_
    bool is_encoded_ = false;
};

// Returns nothing if a line, or a word of a vocabulary, is too long.
std::optional<TextScan> scan_text(TextReader& text, const Splitting& splitting, const SketchSize& sketch,
                                  std::size_t threads, const OnLines& on_lines = {});

}  // namespace chainrule
