// Plain text files in pieces of whole lines, for several threads.
//
// Plain text is what chainrule.text.corpus passes on unchanged: UTF-8 without a byte order mark, lines ending
// with LF (optional for the last), none longer than the maximum. Anything else is left to the Python
// implementation. Files are read, not mapped: a file truncated meanwhile must not end the process with
// SIGBUS.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.hpp"

namespace chainrule {

class PlainText {
  public:
    // `piece`: bytes of a piece; other values only in tests.
    explicit PlainText(std::vector<std::string> files, std::uint64_t piece = std::uint64_t{1} << 20);

    bool is_found() const { return is_found_; }  // every file exists and is not empty
    std::size_t pieces() const { return pieces_.size(); }

    // Lines that begin in this piece, each ending with LF, valid until `buffer` is reused; nothing if
    // they are not plain.
    std::optional<std::string_view> read(std::size_t piece, std::string& buffer) const;

  private:
    struct Piece {
        std::size_t file;
        std::uint64_t from;
    };

    std::vector<std::string> files_;
    std::uint64_t piece_;
    std::vector<std::uint64_t> sizes_;
    std::vector<Piece> pieces_;
    bool is_found_ = true;
};

// Calls work(thread, piece, lines) for each piece, in any order; false if the text is not plain, with some
// pieces processed.
template <class Work>
bool for_each_piece(const PlainText& text, std::size_t threads, const Work& work) {
    if (!text.is_found()) return false;
    std::atomic<std::size_t> next{0};
    std::atomic<bool> is_plain{true};
    parallel_for(std::max<std::size_t>(1, std::min(threads, text.pieces())), [&](std::size_t thread) {
        std::string buffer;
        for (std::size_t piece; is_plain && (piece = next++) < text.pieces();) {
            const std::optional<std::string_view> lines = text.read(piece, buffer);
            if (lines) {
                work(thread, piece, *lines);
            } else {
                is_plain = false;
            }
        }
    });
    return is_plain;
}

// Calls work(line) for each line, without its LF.
template <class Work>
void for_each_line(std::string_view lines, const Work& work) {
    for (std::size_t begin = 0; begin < lines.size();) {
        const std::size_t end = lines.find('\n', begin);
        work(lines.substr(begin, end - begin));
        begin = end + 1;
    }
}

}  // namespace chainrule
