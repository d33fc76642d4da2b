// Texts of any format in pieces of whole lines, for several threads.
//
// An input supplies the bytes of a file, decompressed, or the values of a table column. They are read in
// blocks by one thread at a time; the threads then extract the texts of JSON Lines, validate UTF-8 and
// translate line breaks in parallel. A block that is not plain (invalid UTF-8, a JSON record of an unusual
// form) is converted by a function of the caller, which also raises the errors: results and messages are
// those of text/readers.py.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/lines.hpp"

namespace chainrule {

enum class TextFormat {
    lines,      // plain text
    json,       // JSON Lines
    documents,  // values of a column
    text,       // UTF-8 with LF after each line
};

// Bytes of an input as read: whole lines, or whole documents.
struct TextBlock {
    std::size_t number = 0, input = 0;
    std::uint64_t offset = 0;  // of the first byte in its input
    std::uint64_t first = 0;   // lines (JSON Lines) or documents before it in its input
    std::string bytes;
    std::vector<std::uint64_t> ends;  // of documents
};

struct TextInput {
    TextFormat format = TextFormat::lines;
    std::uint64_t offset = 0;              // of the first byte in its file
    std::uint64_t first = 0;               // lines before it in its file
    std::function<bool(TextBlock&)> read;  // appends bytes or documents; false at the end
};

struct TextOptions {
    std::string column;  // of JSON Lines
    bool drops_blank_lines = false;
    std::size_t block = std::size_t{1} << 20;                       // least bytes of a block of lines
    std::size_t longest = std::numeric_limits<std::size_t>::max();  // most bytes of a line of plain text
    // Returns the lines of a block and the number of replaced sequences.
    std::function<std::pair<std::string, std::uint64_t>(const TextBlock&)> convert;
};

// Lines of consecutive blocks. Lines longer than kLongestLine are cut: `segments` are the pieces between the
// cuts.
struct TextPiece {
    std::size_t number = 0;
    std::string text;  // UTF-8 with LF after each line
    std::vector<std::string_view> segments;
};

// Thrown by `work` of for_each_piece, which then returns false.
struct NotReadable {};

// Throws NotReadable for a word that is too long for a vocabulary: the Python reader raises the error.
void check_word_lengths(const TextPiece& piece);

class TextReader {
  public:
    TextReader(std::vector<TextInput> inputs, TextOptions options)
        : inputs_(std::move(inputs)), options_(std::move(options)) {}

    // Calls work(thread, piece) for each piece, on any thread, in any order of the pieces; rethrows the
    // exception of the first piece in the text that has one, after calling on_fault() as soon as it is
    // thrown. False, with some pieces processed, if that exception is NotReadable, also if a line is too
    // long.
    bool for_each_piece(std::size_t threads, const std::function<void(std::size_t, const TextPiece&)>& work,
                        const std::function<void()>& on_fault = {});

    // The lines of the next block; nothing at the end. Without `longest`, for a single thread.
    std::optional<std::string> next_lines();

    // Invalid UTF-8 sequences and lone surrogates that were replaced.
    std::uint64_t replaced() const { return replaced_; }

  private:
    bool next_block(TextBlock& block);
    bool fill_with_lines(TextBlock& block);
    void advance();
    std::string lines_of(TextBlock& block);

    std::vector<TextInput> inputs_;
    TextOptions options_;
    std::mutex mutex_;  // guards what follows, except `replaced_`
    std::size_t input_ = 0;
    bool is_begun_ = false, is_at_end_ = false;  // of the current input
    std::uint64_t offset_ = 0, first_ = 0;
    std::string rest_;  // bytes after the last line end
    std::size_t blocks_ = 0;
    std::atomic<std::uint64_t> replaced_{0};
};

}  // namespace chainrule
