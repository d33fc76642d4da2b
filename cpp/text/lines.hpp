// Lines of a text in memory. LF, CRLF and CR end a line (text/lines.py); the functions below that read lines
// expect LF.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chainrule {

// Characters of a line, or of a word in a vocabulary: FRAGMENT and LONGEST_WORD in Python.
inline constexpr std::size_t kLongestLine = std::size_t{1} << 16;

// Calls work(line) for each line, without its LF; the last line may be unterminated.
template <class Work>
void for_each_line(std::string_view lines, const Work& work) {
    for (std::size_t begin = 0; begin < lines.size();) {
        const std::size_t end = std::min(lines.find('\n', begin), lines.size());
        work(lines.substr(begin, end - begin));
        begin = end + 1;
    }
}

// Appends a document with LF after each line; an empty document is one blank line.
void append_document(std::string_view document, std::string& out);

// Removes the lines that contain only blanks and tabs.
void drop_blank_lines(std::string& lines);

// Splits UTF-8 into segments: runs of whole lines, and fragments of lines that are longer than `longest`
// characters, cut as by cut_lines in text/lines.py.
void split_long_lines(std::string_view lines, std::size_t longest, std::vector<std::string_view>& segments);

// Whether a word has more than `longest` characters.
bool has_long_word(std::string_view lines, std::size_t longest);

}  // namespace chainrule
