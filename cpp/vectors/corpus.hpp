// The training text of word vectors as a file of word ids, written in one pass.
//
// Words are split at blanks and tabs, sentences at line ends. The file holds one 32-bit id per word and
// kSentenceEnd after every non-empty sentence; training reads it repeatedly, so the text is never in memory.
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

}  // namespace chainrule
