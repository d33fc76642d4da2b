// The word tokenizer: which tokens a line has, and that joining them restores it.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "checks.hpp"
#include "text/punctuation.hpp"

namespace chainrule::tests {

namespace {

std::string split(const std::string& line) {
    std::string out;
    append_split(line, "<unk>", out);
    return out;
}

// `|` represents the joiner in the expected tokens.
void check_split(const std::string& line, const std::string& expected,
                 const Where& where = Where::current()) {
    std::string with_joiners;
    for (const char c : expected) with_joiners += c == '|' ? std::string(kJoiner) : std::string(1, c);
    check(split(line) == with_joiners, "'" + line + "' became '" + split(line) + "'", where);
}

void by_hand() {
    check_split("", "");
    check_split(" \t ", "");
    check_split("He said, \"go!\"", "He said |, \"| go |! |\"");
    check_split("don't John's", "don't John |'s");
    check_split("e.g. the U.S., now", "e.g. the U.S. |, now");
    check_split("3.14 1,000 12:30.", "3.14 1,000 12:30 |.");
    check_split("AT&T a@b.com", "AT&T a@b |.| com");
    check_split("http://x.com/a. (www.b.org)", "http://x.com/a |. (| www.b.org |)");
    check_split("wait... a--b", "wait |... a |--| b");
    check_split("<unk> <unk>,", "<unk> <| unk |> |,");
    check_split("\xE6\x97\xA5\xE6\x9C\xAC", "\xE6\x97\xA5 |\xE6\x9C\xAC");
    check_split("a_b snake_case", "a_b snake_case");
}

void bounds() {
    std::string letters;
    for (int i = 0; i < 16; ++i) letters += "a.";
    check(split(letters) == letters, "sixteen letters are an abbreviation");
    check(split(letters + "a.") != letters + "a.", "seventeen letters are not an abbreviation");
    const std::string address = "www." + std::string(2044, 'x');
    check(split(address) == address, "a long address");
    check(split(address + "x") != address + "x", "an address that is too long");
}

void bytes_that_are_not_utf8() {
    for (const std::string line : {"\xFF.a", "a\xE6.", "\xE6\x97", "\xF0\x9F.\x98", "\x80\x80,"}) {
        std::vector<SplitToken> tokens;
        split_tokens(line, "<unk>", tokens);
        std::size_t at = 0;
        for (const SplitToken& token : tokens) {
            check(token.begin == at && token.end > at, "tokens follow one another");
            at = token.end;
        }
        check(at == line.size(), "tokens cover the line");
        check(join_tokens(split(line)) == line, "restored");
    }
}

std::string collapse(const std::string& line) {
    std::string out;
    for (std::size_t at = 0; at < line.size();) {
        const std::size_t begin = line.find_first_not_of(" \t", at);
        if (begin == std::string::npos) break;
        at = std::min(line.find_first_of(" \t", begin), line.size());
        if (!out.empty()) out += ' ';
        out += line.substr(begin, at - begin);
    }
    return out;
}

void random_lines() {
    const std::vector<std::string> parts{"a",
                                         "b",
                                         "S",
                                         "s",
                                         "1",
                                         "2",
                                         ".",
                                         ",",
                                         ":",
                                         "'",
                                         "\"",
                                         "(",
                                         ")",
                                         "-",
                                         "&",
                                         "@",
                                         "_",
                                         " ",
                                         "\t",
                                         "http://",
                                         "/",
                                         "<unk>",
                                         "www.",
                                         "!",
                                         "\xC2\xA0",
                                         "\xE2\x80\x99",
                                         "\xE6\x97\xA5",
                                         "\xC3\xA9",
                                         std::string(kJoiner)};
    std::uint64_t state = 1;
    for (int i = 0; i < 20000; ++i) {
        std::string line;
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        const auto size = (state >> 33) % 12;
        for (std::uint64_t k = 0; k < size; ++k) {
            state = state * 6364136223846793005ULL + 1442695040888963407ULL;
            line += parts[(state >> 33) % parts.size()];
        }
        check(join_tokens(split(line)) == collapse(line), "'" + line + "' is not restored");
    }
}

void lines_of_a_text() {
    check(split_lines("a.\n\nb, c\n", "<unk>") ==
              "a " + std::string(kJoiner) + ".\n\nb " + std::string(kJoiner) + ", c\n",
          "lines are split one by one");
    check(split_without_joiners("a, b\n\nc.d e") == "a , b \n\nc . d e ", "words without joiners");
    std::string buffer;
    check(Splitting::of({}).apply("a.\n", buffer) == "a.\n", "no placeholder: nothing is split");
    check(Splitting::of("<unk>").apply("a.\n", buffer) != "a.\n", "split");
}

void joiners() {
    const std::string joiner(kJoiner);
    check(joins_left(joiner + ".") && !joins_right(joiner + "."), "on the left");
    check(joins_right("(" + joiner) && !joins_left("(" + joiner), "on the right");
    check(!joins_left(joiner) && !joins_right(joiner), "alone it is a word token");
    check(!joins_left(joiner + "a") && !joins_right("a" + joiner), "words are not joined");
}

}  // namespace

static void test_punctuation() {
    by_hand();
    bounds();
    bytes_that_are_not_utf8();
    random_lines();
    lines_of_a_text();
    joiners();
}

static const Test registered("punctuation", test_punctuation);

}  // namespace chainrule::tests
