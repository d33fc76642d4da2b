#include "arpa/lines.hpp"

#include <algorithm>
#include <cstring>

#include "arpa/model.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kLittle = std::size_t{1} << 16;

ArpaFault too_long(std::uint64_t number) {
    return {number, "longer than " + std::to_string(kLongestLine) + " bytes; this is not an ARPA file"};
}

}  // namespace

std::string_view checked_line(std::string_view line, std::uint64_t number) {
    if (line.size() > kLongestLine) throw too_long(number);
    if (!line.empty() && std::memchr(line.data(), 0, line.size()))
        throw ArpaFault(number, "holds a NUL byte; an ARPA file is UTF-8 text");
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r'))
        line.remove_suffix(1);
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t' || line.front() == '\r'))
        line.remove_prefix(1);
    return line;
}

void ArpaLines::fill(std::size_t wanted) {
    if (held_.size() - at_ >= wanted || is_end_) return;
    held_.erase(0, at_);
    at_ = 0;
    while (held_.size() < wanted && !is_end_) {
        const std::string_view block = next_block_();
        is_end_ = block.empty();
        held_.append(block);
    }
}

std::string_view ArpaLines::window(std::size_t wanted) {
    for (;; wanted = kLongestLine + kLittle) {
        fill(wanted);
        const std::string_view all = std::string_view(held_).substr(at_);
        if (is_end_) return all;
        const std::size_t end = all.rfind('\n');
        if (end != std::string_view::npos) return all.substr(0, end + 1);
        if (all.size() > kLongestLine) throw too_long(number_ + 1);
    }
}

bool ArpaLines::next(std::string_view& line) {
    std::string_view all = std::string_view(held_).substr(at_);
    if (all.find('\n') == std::string_view::npos) all = window(kLittle);
    if (all.empty()) return false;
    const std::size_t end = std::min(all.find('\n'), all.size());
    skip(std::min(end + 1, all.size()), 1);
    line = all.substr(0, end);
    if (number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);  // a byte order mark
    line = checked_line(line, number_);
    return true;
}

}  // namespace chainrule
