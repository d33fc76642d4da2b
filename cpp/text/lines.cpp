#include "text/lines.hpp"

#include <cstdint>
#include <optional>

#include "text/utf8.hpp"

namespace chainrule {

namespace {

constexpr bool is_blank(char c) { return c == ' ' || c == '\t'; }

constexpr bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Whether the character at `at` is white space for str.isspace and \s of Python.
bool is_space(std::string_view text, std::size_t at) {
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) return (first >= 9 && first <= 13) || (first >= 0x1C && first <= 0x20);
    const std::string_view rest = text.substr(at);
    for (const std::string_view space : {"\xC2\x85", "\xC2\xA0", "\xE1\x9A\x80", "\xE2\x80\xA8",
                                         "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"}) {
        if (rest.starts_with(space)) return true;
    }
    // U+2000 to U+200A
    return rest.size() >= 3 && rest.starts_with("\xE2\x80") && static_cast<unsigned char>(rest[2]) <= 0x8A;
}

// The byte offset `characters` characters after `at`; nothing if the text is shorter.
std::optional<std::size_t> advance(std::string_view text, std::size_t at, std::size_t characters) {
    for (; characters; --characters) {
        if (at == text.size()) return {};
        ++at;
        while (at < text.size() && is_continuation(text[at])) ++at;
    }
    return at;
}

std::size_t previous(std::string_view text, std::size_t at) {
    do --at;
    while (is_continuation(text[at]));
    return at;
}

// The end of the fragment that begins at `begin`: before the last blank, up to `end`, that is followed by a
// character other than white space; `end` if there is none.
std::size_t find_cut(std::string_view line, std::size_t begin, std::size_t end) {
    const std::size_t first = *advance(line, begin, 1);
    bool is_before_word = false;
    for (std::size_t at = *advance(line, end, 1); at > first;) {
        at = previous(line, at);
        if (is_before_word && is_blank(line[at])) return at;
        is_before_word = !is_space(line, at);
    }
    return end;
}

}  // namespace

void append_document(std::string_view document, std::string& out) {
    for (std::size_t at = 0; at < document.size();) {
        const std::size_t end = document.find('\r', at);
        if (end == std::string_view::npos) {
            out += document.substr(at);
            break;
        }
        (out += document.substr(at, end - at)) += '\n';
        at = end + 1;
        if (at < document.size() && document[at] == '\n') ++at;
    }
    if (document.empty() || (document.back() != '\n' && document.back() != '\r')) out += '\n';
}

void drop_blank_lines(std::string& lines) {
    std::size_t size = 0;
    for (std::size_t begin = 0; begin < lines.size();) {
        const std::size_t end = lines.find('\n', begin) + 1;
        const auto first = lines.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto last = lines.begin() + static_cast<std::ptrdiff_t>(end);
        if (!std::all_of(first, last - 1, is_blank)) {
            std::copy(first, last, lines.begin() + static_cast<std::ptrdiff_t>(size));
            size += end - begin;
        }
        begin = end;
    }
    lines.resize(size);
}

void split_long_lines(std::string_view lines, std::size_t longest, std::vector<std::string_view>& segments) {
    segments.clear();
    std::size_t whole = 0,
                begin = 0;  // begin of the whole lines that are not yet in a segment, and of the line
    for_each_line(lines, [&](std::string_view line) {
        std::size_t start = 0;
        if (line.size() > longest) {
            for (;;) {
                const std::optional<std::size_t> end = advance(line, start, longest);
                if (!end || *end == line.size()) break;
                if (!start && begin > whole) segments.push_back(lines.substr(whole, begin - whole));
                const std::size_t cut = find_cut(line, start, *end);
                segments.push_back(line.substr(start, cut - start));
                start = cut;
                whole = begin + cut;
            }
        }
        begin += line.size() + 1;
    });
    if (whole < lines.size()) segments.push_back(lines.substr(whole));
}

bool has_long_word(std::string_view lines, std::size_t longest) {
    std::size_t begin = 0;
    const auto is_long = [&](std::size_t end) {
        return end - begin > longest && count_characters(lines.substr(begin, end - begin)) > longest;
    };
    for (std::size_t at = 0; at < lines.size(); ++at) {
        if (!is_blank(lines[at]) && lines[at] != '\n') continue;
        if (is_long(at)) return true;
        begin = at + 1;
    }
    return is_long(lines.size());
}

}  // namespace chainrule
