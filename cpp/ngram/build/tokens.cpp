#include "ngram/build/tokens.hpp"

#include <string>

#include "base/error.hpp"

namespace chainrule {

namespace {

// One bit of a position tells where an n-gram begins (ngram/build/count.cpp).
constexpr std::uint64_t kMostTokens = (std::uint64_t{1} << 31) - 1;

}  // namespace

Tokens take_ids(std::span<const std::int32_t> ids, std::uint32_t vocabulary, std::uint32_t begin,
                std::uint32_t end, bool is_stream) {
    if (begin >= vocabulary || end >= vocabulary || begin == end)
        throw Failure("<s> and </s> must be two numbers below the size of the vocabulary");
    Tokens tokens;
    for (const std::int32_t id : ids) {
        if (id < 0 || static_cast<std::uint32_t>(id) >= vocabulary)
            throw Failure("the text holds the number " + std::to_string(id) + ", which is not below the " +
                          std::to_string(vocabulary) + " of the vocabulary");
        if (static_cast<std::uint32_t>(id) == begin)
            throw Failure("the text holds <s>, which lines are given here");
        tokens.lines += static_cast<std::uint32_t>(id) == end;
    }
    if (!is_stream && !ids.empty() && static_cast<std::uint32_t>(ids.back()) != end)
        throw Failure("the last line of the text does not end with </s>");
    const std::size_t size = ids.empty() ? 0 : ids.size() + (is_stream ? 1 : tokens.lines);
    if (size > kMostTokens) throw Failure("the text has more than 2147483647 tokens");
    tokens.ids = Array<std::uint32_t>(size, Access::scattered);
    tokens.vocabulary = vocabulary;
    tokens.begin = begin;
    tokens.end = end;
    tokens.is_stream = is_stream;
    std::size_t at = 0;
    bool begins = true;
    for (const std::int32_t id : ids) {
        if (begins) tokens.ids[at++] = begin;
        tokens.ids[at++] = static_cast<std::uint32_t>(id);
        begins = !is_stream && static_cast<std::uint32_t>(id) == end;
    }
    return tokens;
}

}  // namespace chainrule
