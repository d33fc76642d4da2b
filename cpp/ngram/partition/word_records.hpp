// Words as records: the counts of a text that arrives in blocks, by hash of the word, and vocabularies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/encode.hpp"
#include "text/line_sketch.hpp"
#include "text/punctuation.hpp"
#include "text/words.hpp"

namespace chainrule {

// Counts words, sizes and the sketch of the lines of a text.
class BlockCounter {
  public:
    // Without `counts_words`, only sizes and the sketch are computed.
    BlockCounter(Splitting splitting, const SketchSize& sketch, bool counts_words)
        : splitting_(std::move(splitting)), sketcher_(sketch), counts_words_(counts_words) {}

    // Adds lines that end with LF. Without `ends_line` they are the beginning of one line, with an LF that is
    // not part of it.
    void add(std::string_view lines, bool ends_line = true);
    void add_count(std::string_view word, std::uint64_t count) { words_.add(Word::of(word), count); }

    TextCounts sizes() const;
    std::vector<std::uint64_t> sketch() const { return merge_sketches({sketcher_}).hashes; }

    // The counts as records of (part, bytes); the part is a hash of the word modulo `parts`.
    std::vector<std::pair<std::uint32_t, std::string>> records(std::uint32_t parts) const;

  private:
    Splitting splitting_;
    WordCounter words_;
    LineSketcher sketcher_;
    bool counts_words_;
    TextSize size_;
    std::uint64_t filled_ = 0;  // non-empty lines
    bool is_empty_ = true;      // the line so far
};

// Whether a line is too long to be read at once: more than 2^16 characters.
bool has_long_line(std::string_view lines);

// Adds up records of counts.
WordCounts add_word_counts(const std::vector<std::string_view>& records);

// The counts as one record, most frequent words first.
std::string word_count_record(const WordCounts& counts);

// A vocabulary as bytes, for the tasks that encode a text.
std::string encoding_record(const WordEncoding& encoding);
WordEncoding read_encoding(std::string_view record);

}  // namespace chainrule
