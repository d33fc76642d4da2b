#include "arpa/header.hpp"

#include <optional>
#include <string_view>

#include "arpa/model.hpp"
#include "arpa/reader.hpp"

namespace chainrule {

namespace {

void skip_blanks(std::string_view& text) {
    while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
}

// Takes at most `most` digits.
std::optional<std::uint64_t> take_number(std::string_view& text, std::size_t most) {
    std::uint64_t value = 0;
    std::size_t taken = 0;
    for (; taken < text.size() && text[taken] >= '0' && text[taken] <= '9'; ++taken) {
        if (taken == most) return std::nullopt;
        value = value * 10 + static_cast<std::uint64_t>(text[taken] - '0');
    }
    if (taken == 0) return std::nullopt;
    text.remove_prefix(taken);
    return value;
}

struct Count {
    std::uint64_t order, count;
};

// ngram ORDER=COUNT
std::optional<Count> count_of(std::string_view line) {
    if (!line.starts_with("ngram")) return std::nullopt;
    line.remove_prefix(5);
    if (!line.starts_with(' ') && !line.starts_with('\t')) return std::nullopt;
    skip_blanks(line);
    const auto order = take_number(line, 9);
    skip_blanks(line);
    if (!order || !line.starts_with('=')) return std::nullopt;
    line.remove_prefix(1);
    skip_blanks(line);
    const auto count = take_number(line, 18);
    if (!count || !line.empty()) return std::nullopt;
    return Count{*order, *count};
}

std::uint64_t read_claim(std::string_view line, std::size_t n, std::uint64_t number) {
    const auto found = count_of(line);
    if (!found)
        throw ArpaFault(number, "", std::string(line),
                        " is not a count; expected 'ngram " + std::to_string(n) + "=COUNT'");
    if (found->order != n)
        throw ArpaFault(number, "counts order " + std::to_string(found->order) + " where order " +
                                    std::to_string(n) + " comes next");
    if (n > kHighestOrder)
        throw ArpaFault(number, "order " + std::to_string(n) + " is above " + std::to_string(kHighestOrder) +
                                    ", the highest there is");
    return found->count;
}

}  // namespace

ArpaHeader read_arpa_header(ArpaLines& lines) {
    std::string_view line;
    do {
        if (lines.next(line)) continue;
        const std::string what = lines.number()
                                     ? "has no \\data\\ in its " + std::to_string(lines.number()) + " lines"
                                     : "is empty";
        throw ArpaFault(0, what + "; it is not an ARPA file");
    } while (line != "\\data\\");
    ArpaHeader header;
    while (lines.next(line)) {
        if (line.starts_with('\\')) {
            if (header.claims.empty())
                throw ArpaFault(lines.number(), "the header counts no n-grams; expected 'ngram 1=COUNT'");
            header.mark = line;
            return header;
        }
        if (line.empty()) continue;
        const std::uint64_t count = read_claim(line, header.claims.size() + 1, lines.number());
        header.claims.push_back({count, lines.number()});
    }
    throw ArpaFault(lines.number(), "the file ends in its header, without \\end\\; it was cut short");
}

}  // namespace chainrule
