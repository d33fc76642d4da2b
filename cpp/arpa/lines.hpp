// The lines of an ARPA file, from blocks of bytes as they come.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace chainrule {

// The next bytes of a file, good until it is called again; none at the end.
using NextBlock = std::function<std::string_view()>;

inline constexpr std::size_t kLongestLine = std::size_t{1} << 20;  // bytes

// A line without the blanks around it; refused where it is too long or holds a NUL byte. `line` has no line
// end.
std::string_view checked_line(std::string_view line, std::uint64_t number);

class ArpaLines {
  public:
    explicit ArpaLines(NextBlock next) : next_block_(std::move(next)) {}

    // The next line, checked; false at the end of the file.
    bool next(std::string_view& line);
    // The number of the last line that was read, from 1.
    std::uint64_t number() const { return number_; }

    // The lines that come next, whole, about `wanted` bytes of them; empty at the end of the file.
    std::string_view window(std::size_t wanted);
    // Of the window so many bytes, which are so many lines, were read.
    void skip(std::size_t bytes, std::uint64_t lines) {
        at_ += bytes;
        number_ += lines;
    }

  private:
    void fill(std::size_t wanted);

    NextBlock next_block_;
    std::string held_;
    std::size_t at_ = 0;  // bytes of it that were read
    bool is_end_ = false;
    std::uint64_t number_ = 0;
};

}  // namespace chainrule
