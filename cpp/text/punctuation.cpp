#include "text/punctuation.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "text/lines.hpp"
#include "text/unicode_classes.hpp"

namespace chainrule {

namespace {

enum class Kind : std::uint8_t { kBlank, kWord, kMark, kIdeograph };

constexpr std::uint32_t kJoinerCode = 0xFFED;

// Longer ones are split like other text; without a bound, crafted input would take quadratic time.
constexpr std::size_t kMaxAddress = 2048;     // bytes to the next blank
constexpr std::size_t kMaxAbbreviation = 16;  // letters

bool is_in(const CodePoints* begin, const CodePoints* end, std::uint32_t code) {
    const CodePoints* const at =
        std::lower_bound(begin, end, code, [](const CodePoints& r, std::uint32_t c) { return r.last < c; });
    return at != end && at->first <= code;
}

Kind find_kind(std::uint32_t code) {
    if (code == ' ' || code == '\t') return Kind::kBlank;
    if (is_in(std::begin(kPunctuation), std::end(kPunctuation), code)) return Kind::kMark;
    if (is_in(std::begin(kIdeographic), std::end(kIdeographic), code)) return Kind::kIdeograph;
    return Kind::kWord;
}

struct Character {
    std::uint32_t code;
    Kind kind;
    std::size_t end;  // start of the next character
};

constexpr bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The character at `at` (before the end); bytes that are not UTF-8 count as letters.
Character character_at(std::string_view text, std::size_t at) {
    static const std::array<Kind, 128> kAscii = [] {
        std::array<Kind, 128> kinds{};
        for (std::uint32_t code = 0; code < 128; ++code) kinds[code] = find_kind(code);
        return kinds;
    }();
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) return {first, kAscii[first], at + 1};
    const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    std::uint32_t code = first & (0xFFU >> (length + 1));
    std::size_t end = at + 1;
    for (; end < text.size() && end < at + length && continues(text[end]); ++end)
        code = code << 6 | (static_cast<unsigned char>(text[end]) & 0x3FU);
    if (end != at + length) return {0xFFFD, Kind::kWord, end};
    return {code, find_kind(code), end};
}

std::size_t before(std::string_view text, std::size_t at) {
    do --at;
    while (at > 0 && continues(text[at]));
    return at;
}

bool is_digit(std::uint32_t code) { return code >= '0' && code <= '9'; }

bool is_letter(const Character& c) {
    return c.kind == Kind::kWord && !is_digit(c.code) && c.code != '_' && c.code != kJoinerCode;
}

bool is_apostrophe(std::uint32_t code) { return code == '\'' || code == 0x2019; }

// Tokenizes the text between two blanks.
class Chunk {
  public:
    explicit Chunk(std::string_view text) : text_(text) {}

    struct Token {
        std::size_t end;
        bool is_mark;
    };

    Token token_at(std::size_t at) const {
        if (const std::size_t end = address_end(at)) return {end, false};
        const Character first = character_at(text_, at);
        if (first.kind == Kind::kWord) {
            if (const std::size_t end = abbreviation_end(at)) return {end, false};
            return {word_end(at), false};
        }
        if (const std::size_t end = clitic_end(at)) return {end, true};
        std::size_t end = first.end;
        while (first.kind == Kind::kMark && end < text_.size()) {
            const Character next = character_at(text_, end);
            if (next.code != first.code) break;
            end = next.end;
        }
        return {end, true};
    }

  private:
    bool is_word_at(std::size_t at) const {
        return at < text_.size() && character_at(text_, at).kind == Kind::kWord;
    }

    // End of a URL that begins here, 0 if none; sentence-final punctuation is excluded.
    std::size_t address_end(std::size_t at) const {
        const std::string_view rest = text_.substr(at);
        if (!rest.starts_with("http://") && !rest.starts_with("https://") && !rest.starts_with("www."))
            return 0;
        if (rest.size() > kMaxAddress) return 0;
        std::size_t end = text_.size();
        while (end > at && std::string_view(".,;:!?)\"'>]").find(text_[end - 1]) != std::string_view::npos)
            --end;
        const bool has_joiner = text_.substr(at, end - at).find(kJoiner) != std::string_view::npos;
        return has_joiner || is_word_at(end) ? 0 : end;
    }

    // End of an abbreviation (two or more letters, each followed by a dot, not followed by a word), 0 if
    // none.
    std::size_t abbreviation_end(std::size_t at) const {
        std::size_t letters = 0, end = at;
        while (end < text_.size() && letters <= kMaxAbbreviation) {
            const Character letter = character_at(text_, end);
            if (!is_letter(letter) || letter.end >= text_.size() || text_[letter.end] != '.') break;
            end = letter.end + 1;
            ++letters;
        }
        return letters < 2 || letters > kMaxAbbreviation || is_word_at(end) ? 0 : end;
    }

    std::size_t word_end(std::size_t at) const {
        Character last = character_at(text_, at);
        while (last.end < text_.size()) {
            const Character next = character_at(text_, last.end);
            if (next.kind == Kind::kWord) {
                last = next;
                continue;
            }
            if (!is_word_at(next.end)) break;
            const Character after = character_at(text_, next.end);
            if (!is_inside(last, next, after) || clitic_end(last.end)) break;
            last = after;
        }
        return last.end;
    }

    // Whether punctuation between two characters of a word stays in the word.
    static bool is_inside(const Character& left, const Character& mark, const Character& right) {
        if (left.code == kJoinerCode || right.code == kJoinerCode) return false;
        if (is_apostrophe(mark.code)) return is_letter(left) && is_letter(right);
        if (mark.code == '.' || mark.code == ',' || mark.code == ':')
            return is_digit(left.code) && is_digit(right.code);
        return mark.code == '&' || mark.code == '@';
    }

    // End of a clitic 's, 0 if none begins here.
    std::size_t clitic_end(std::size_t at) const {
        const Character mark = character_at(text_, at);
        if (at == 0 || !is_apostrophe(mark.code) || mark.end >= text_.size()) return 0;
        if (!is_letter(character_at(text_, before(text_, at)))) return 0;
        const char letter = text_[mark.end];
        return (letter == 's' || letter == 'S') && !is_word_at(mark.end + 1) ? mark.end + 1 : 0;
    }

    std::string_view text_;
};

void split_chunk(std::string_view line, std::size_t begin, std::size_t end, std::vector<SplitToken>& tokens) {
    const std::string_view text = line.substr(begin, end - begin);
    const Chunk chunk(text);
    bool was_mark = false;
    for (std::size_t at = 0; at < text.size();) {
        const Chunk::Token token = chunk.token_at(at);
        if (at > 0 && !token.is_mark && was_mark) tokens.back().joins_right = true;
        tokens.push_back({begin + at, begin + token.end, at > 0 && token.is_mark, false});
        was_mark = token.is_mark;
        at = token.end;
    }
}

bool is_mark_or_ideograph(std::string_view text, std::size_t at) {
    const Kind kind = character_at(text, at).kind;
    return kind == Kind::kMark || kind == Kind::kIdeograph;
}

}  // namespace

void split_tokens(std::string_view line, std::string_view placeholder, std::vector<SplitToken>& tokens) {
    tokens.clear();
    for (std::size_t at = 0; at < line.size();) {
        if (line[at] == ' ' || line[at] == '\t') {
            ++at;
            continue;
        }
        const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
        if (line.substr(at, end - at) == placeholder) {
            tokens.push_back({at, end, false, false});
        } else {
            split_chunk(line, at, end, tokens);
        }
        at = end;
    }
}

void append_split(std::string_view line, std::string_view placeholder, std::string& out) {
    thread_local std::vector<SplitToken> tokens;  // reused for the next line
    split_tokens(line, placeholder, tokens);
    bool is_first = true;
    for (const SplitToken& token : tokens) {
        if (!is_first) out += ' ';
        is_first = false;
        if (token.joins_left) out += kJoiner;
        out += line.substr(token.begin, token.end - token.begin);
        if (token.joins_right) out += kJoiner;
    }
}

std::string split_lines(std::string_view lines, std::string_view placeholder) {
    std::string out;
    out.reserve(lines.size() + lines.size() / 4);
    for_each_line(lines, [&](std::string_view line) {
        append_split(line, placeholder, out);
        out += '\n';
    });
    if (!lines.ends_with('\n') && !lines.empty()) out.pop_back();
    return out;
}

std::string split_without_joiners(std::string_view text) {
    std::string out;
    out.reserve(text.size() + text.size() / 4);
    std::vector<SplitToken> tokens;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        const std::string_view line = text.substr(at, end - at);
        split_tokens(line, {}, tokens);
        for (const SplitToken& token : tokens)
            (out += line.substr(token.begin, token.end - token.begin)) += ' ';
        if (end < text.size()) out += '\n';
        at = end + 1;
    }
    return out;
}

bool joins_left(std::string_view token) {
    return token.size() > kJoiner.size() && token.starts_with(kJoiner) &&
           is_mark_or_ideograph(token, kJoiner.size());
}

bool joins_right(std::string_view token) {
    return token.size() > kJoiner.size() && token.ends_with(kJoiner) &&
           is_mark_or_ideograph(token, before(token, token.size() - kJoiner.size()));
}

std::string join_tokens(std::string_view tokens) {
    std::string out;
    bool is_joined = true;
    for (std::size_t at = 0; at < tokens.size();) {
        if (tokens[at] == ' ') {
            ++at;
            continue;
        }
        const std::size_t end = std::min(tokens.find(' ', at), tokens.size());
        std::string_view token = tokens.substr(at, end - at);
        at = end;
        const bool left = joins_left(token), right = joins_right(token);
        if (left) token.remove_prefix(kJoiner.size());
        if (right) token.remove_suffix(kJoiner.size());
        if (!left && !is_joined) out += ' ';
        out += token;
        is_joined = right;
    }
    return out;
}

}  // namespace chainrule
