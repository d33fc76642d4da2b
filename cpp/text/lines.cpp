#include "text/lines.hpp"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "text/utf8.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kMaxLine = std::size_t{1} << 16;  // characters: FRAGMENT of text/lines.py
constexpr std::size_t kMaxBytes = 4 * kMaxLine;         // bytes of such a line
constexpr std::string_view kMark = "\xEF\xBB\xBF";

bool has_plain_lines(std::string_view lines) {
    if (lines.find('\r') != std::string_view::npos || !is_utf8(lines)) return false;
    bool is_short = true;
    for_each_line(lines, [&](std::string_view line) {
        if (line.size() > kMaxLine) is_short &= count_characters(line) <= kMaxLine;
    });
    return is_short;
}

// Appends the next `size` bytes to `buffer`.
bool read_more(std::ifstream& in, std::uint64_t size, std::string& buffer) {
    const std::size_t before = buffer.size();
    buffer.resize(before + size);
    in.read(buffer.data() + before, static_cast<std::streamsize>(size));
    return static_cast<std::uint64_t>(in.gcount()) == size;
}

// Reads to the end of the last line; false if it is too long or the file was truncated.
bool end_line(std::ifstream& in, std::uint64_t left, std::string& buffer) {
    for (std::size_t added = 0; left && buffer.back() != '\n';) {
        if (added > kMaxBytes) return false;
        const std::size_t before = buffer.size();
        const std::uint64_t size = std::min<std::uint64_t>(left, kMaxLine);
        if (!read_more(in, size, buffer)) return false;
        left -= size;
        added += size;
        const std::size_t end = buffer.find('\n', before);
        if (end != std::string::npos) buffer.resize(end + 1);
    }
    if (buffer.back() != '\n') buffer.push_back('\n');
    return true;
}

}  // namespace

PlainText::PlainText(std::vector<std::string> files, std::uint64_t piece)
    : files_(std::move(files)), piece_(piece) {
    for (std::size_t file = 0; file < files_.size(); ++file) {
        std::error_code error;
        const std::uint64_t size = std::filesystem::file_size(files_[file], error);
        // Virtual files (such as /proc) report size 0.
        if (error || size == 0) {
            is_found_ = false;
            return;
        }
        sizes_.push_back(size);
        for (std::uint64_t from = 0; from < size; from += piece_) pieces_.push_back({file, from});
    }
}

std::optional<std::string_view> PlainText::read(std::size_t piece, std::string& buffer) const {
    const auto [file, from] = pieces_[piece];
    const std::uint64_t to = std::min(from + piece_, sizes_[file]);
    const std::uint64_t begin = from ? from - 1 : 0;  // a line begins after an LF
    std::ifstream in(files_[file], std::ios::binary);
    buffer.clear();
    if (!in.seekg(static_cast<std::streamoff>(begin)) || !read_more(in, to - begin, buffer)) return {};
    if (!from && buffer.starts_with(kMark)) return {};
    std::size_t first = 0;
    if (from) {
        const std::size_t end = buffer.find('\n');
        if (end == std::string::npos || end + 1 == buffer.size()) return std::string_view();
        first = end + 1;
    }
    if (!end_line(in, sizes_[file] - to, buffer)) return {};
    const std::string_view lines = std::string_view(buffer).substr(first);
    if (!has_plain_lines(lines)) return {};
    return lines;
}

}  // namespace chainrule
