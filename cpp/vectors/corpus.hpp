// The training text of word vectors as a file of word ids, written in one pass.
//
// Words are split at blanks and tabs, sentences at line ends. The file holds one 32-bit id per word and
// kSentenceEnd after every non-empty sentence; training reads it repeatedly, so the text is never in memory.
//
// The parts of a divided text are counted by themselves; `WordSums` adds up their counts and restores the
// order in which the words appear in the whole text.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "text/word_table.hpp"

namespace chainrule {

inline constexpr std::int32_t kSentenceEnd = -1;

class WordIdWriter {
  public:
    explicit WordIdWriter(const std::string& file);

    void feed(std::string_view text);  // may be split anywhere, even within a word
    void finish();                     // call at the end of the text

    std::size_t types() const { return counts_.size(); }
    std::uint64_t words() const { return words_; }
    std::uint64_t numbers() const { return written_; }  // ids in the file
    const std::vector<std::uint64_t>& counts() const { return counts_; }
    std::string_view word(std::size_t number) const { return table_.word(number); }

    // The counts as bytes for WordSums, in `parts` parts by hash of the word; `partition` is the number of
    // this part of the text.
    std::vector<std::string> records(std::uint32_t parts, std::uint32_t partition) const;

  private:
    void add(std::string_view word);
    void end_sentence();
    void write(std::int32_t number);
    void flush();

    std::string file_;
    std::ofstream out_;
    std::vector<std::int32_t> buffer_;
    std::string rest_;  // incomplete word at the end of the last piece
    bool in_sentence_ = false, is_finished_ = false;
    std::uint64_t words_ = 0, written_ = 0;
    WordTable table_;
    std::vector<std::uint64_t> counts_;  // by number
};

// Reads such a file.
class WordIdFile {
  public:
    explicit WordIdFile(const std::string& file);
    // Reads ids from index `first` on, at most the size of `into`; returns how many.
    std::size_t read(std::uint64_t first, std::vector<std::int32_t>& into);

  private:
    std::string file_;
    std::ifstream in_;
};

// Adds up the counts of words. The position of a word is that of its first occurrence: the number of the part
// of the text, then the number of the word within it.
class WordSums {
  public:
    void add(std::string_view record);  // of WordIdWriter::records or of record()
    // The words with at least `min_count` occurrences; of the others the summary.
    std::string record(std::uint64_t min_count) const;
    // Numbers of the words by descending count, then position; at most `limit`.
    std::vector<std::uint32_t> ranked(std::size_t limit) const;

    std::string_view word(std::uint32_t number) const { return table_.word(number); }
    std::uint64_t count(std::uint32_t number) const { return counts_[number]; }
    // Of all words, also of those left out of the records.
    std::uint64_t types() const { return left_out_.types + table_.size(); }
    std::uint64_t words() const;
    std::uint64_t highest_count() const;

  private:
    struct Summary {
        std::uint64_t types = 0, words = 0, highest = 0;
    };

    Summary left_out_;  // words of the records that they do not contain
    WordTable table_;
    std::vector<std::uint64_t> counts_, positions_;  // by number
};

// Ids of the words of a vocabulary.
class WordIndex {
  public:
    explicit WordIndex(std::string_view words);  // each followed by LF, in the order of the ids

    std::size_t size() const { return table_.size(); }
    // Id of each word by its number; −1 if it is not in the vocabulary.
    std::vector<std::int32_t> ids_of(const WordIdWriter& text) const;

  private:
    WordTable table_;
};

}  // namespace chainrule
