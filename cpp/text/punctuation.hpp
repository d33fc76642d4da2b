// The word tokenizer: splits punctuation marks and ideographs from words, reversibly.
//
// Tokens are separated by one blank. Where the text has no blank between two tokens, a joiner (U+FFED) is
// attached to the one that is a mark, on the side of its neighbour: `He said, "go!"` becomes
// `He said ￭, "￭ go ￭! ￭"`. Words never carry joiners, so that a word is one type wherever it stands.
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

// The tokens of one line. `placeholder` (`<unk>`), where it stands between blanks, is one token.
void split_tokens(std::string_view line, std::string_view placeholder, std::vector<SplitToken>& tokens);

// Appends the tokens of one line with their joiners, one blank apart.
void append_split(std::string_view line, std::string_view placeholder, std::string& out);

// The same of lines that end with LF.
std::string split_lines(std::string_view lines, std::string_view placeholder);

// Whether punctuation is split off (text/punctuation.hpp), and the placeholder of unknown words that is left
// whole.
struct Splitting {
    bool is_on = false;
    std::string placeholder;

    // Nothing is split off without a placeholder.
    static Splitting of(const std::optional<std::string>& placeholder) {
        return {placeholder.has_value(), placeholder.value_or("")};
    }

    // The lines as they are, or split; they may stand in `buffer`.
    std::string_view apply(std::string_view lines, std::string& buffer) const {
        if (!is_on) return lines;
        buffer = split_lines(lines, placeholder);
        return buffer;
    }
};

// The words of a text of several lines, one blank apart and without joiners, line breaks as they are; the
// last line, where it is not ended, gets a blank.
std::string split_without_joiners(std::string_view text);

// The text of tokens that are one blank apart.
std::string join_tokens(std::string_view tokens);

// Whether a token carries a joiner on this side.
bool joins_left(std::string_view token);
bool joins_right(std::string_view token);

}  // namespace chainrule
