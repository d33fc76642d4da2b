// The word tokenizer: splits punctuation marks and ideographs from words, reversibly.
//
// Tokens are separated by one blank. Where the text has no blank between two tokens, a joiner (U+FFED) is
// attached to the one that is a mark, on the side of its neighbour: `He said, "go!"` becomes
// `He said ￭, "￭ go ￭! ￭"`. Words never carry joiners, so that a word is the same type in every position.
// `join_tokens` restores the text; runs of blanks are collapsed to one, and blanks at the ends removed.
//
// A word is a run of characters that are neither blanks, nor punctuation or symbols (Unicode P and S), nor
// ideographs. Inside a word stay: an apostrophe between letters (don't; but 's at the end of a word is a
// token), `.`, `,` and `:` between digits (3.14, 1,000, 12:30), `&` and `@` between any two of its characters
// (AT&T).
// Abbreviations of single letters (e.g., U.S.) and addresses (http://, https://, www.) are one token. A run
// of one and the same mark is one token (...), and so is each ideograph.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chainrule {

inline constexpr std::string_view kJoiner = "\xEF\xBF\xAD";  // U+FFED

struct SplitToken {
    std::size_t begin, end;  // bytes of the line
    bool joins_left, joins_right;
};

// Tokens of one line. `placeholder` (`<unk>`) between blanks is one token.
void split_tokens(std::string_view line, std::string_view placeholder, std::vector<SplitToken>& tokens);

// Appends the tokens of one line with joiners, separated by one blank.
void append_split(std::string_view line, std::string_view placeholder, std::string& out);

// The same for several lines; the last may be unterminated.
std::string split_lines(std::string_view lines, std::string_view placeholder);

// Whether punctuation is split, and the placeholder of unknown words that is kept whole.
struct Splitting {
    bool is_on = false;
    std::string placeholder;

    // Without a placeholder nothing is split.
    static Splitting of(const std::optional<std::string>& placeholder) {
        return {placeholder.has_value(), placeholder.value_or("")};
    }

    // The lines unchanged, or split into `buffer`.
    std::string_view apply(std::string_view lines, std::string& buffer) const {
        if (!is_on) return lines;
        buffer = split_lines(lines, placeholder);
        return buffer;
    }
};

// Words of several lines, each followed by a blank, without joiners; line breaks are kept.
std::string split_without_joiners(std::string_view text);

// Restores the text from tokens separated by one blank.
std::string join_tokens(std::string_view tokens);

// Whether a token has a joiner on this side.
bool joins_left(std::string_view token);
bool joins_right(std::string_view token);

}  // namespace chainrule
