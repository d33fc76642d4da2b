#include "ngram_text.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "failure.hpp"
#include "parallel.hpp"

namespace chainrule {

namespace {

// One bit of a position tells where an n-gram begins (ngram_counting.cpp).
constexpr std::uint64_t kMostTokens = (std::uint64_t{1} << 31) - 1;

constexpr bool is_cut(char c) { return c == ' ' || c == '\t' || c == '\n'; }

// The high bit of each byte of `x` that is `c`; bits above the lowest one that is set may be wrong.
constexpr std::uint64_t bytes_that_are(char c, std::uint64_t x) {
    constexpr std::uint64_t ones = 0x0101010101010101ULL;
    x ^= ones * static_cast<unsigned char>(c);
    return (x - ones) & ~x & (ones << 7);
}

struct Word {
    std::string_view letters;
    std::uint64_t key;
};

// The word that begins at `at`, found eight bytes at a time: most end within the first eight.
Word word_at(const char* at, const char* stop) {
    const char* end = at;
    if constexpr (std::endian::native == std::endian::little) {
        while (stop - end >= 8) {
            std::uint64_t x;
            std::memcpy(&x, end, 8);
            const std::uint64_t cuts =
                bytes_that_are(' ', x) | bytes_that_are('\t', x) | bytes_that_are('\n', x);
            if (!cuts) {
                end += 8;
                continue;
            }
            // Of letters before the cut; 0: the word ended with the last eight.
            const int bits = std::countr_zero(cuts) - 7;
            const auto length = static_cast<std::size_t>(end - at) + static_cast<std::size_t>(bits) / 8;
            const std::string_view letters(at, length);
            if (end == at) return {letters, x & ((std::uint64_t{1} << bits) - 1)};
            return {letters, Vocabulary::key(letters)};
        }
    }
    while (end < stop && !is_cut(*end)) ++end;
    const std::string_view letters(at, static_cast<std::size_t>(end - at));
    return {letters, Vocabulary::key(letters)};
}

// Numbers one by one into memory of the kind that the tokens have.
class Numbers {
  public:
    explicit Numbers(std::size_t expected = 0) : ids_(expected) {}

    void push(std::uint32_t id) {
        if (size_ == ids_.size()) [[unlikely]]
            grow();
        ids_[size_++] = id;
    }
    std::size_t size() const { return size_; }
    const std::uint32_t* begin() const { return ids_.begin(); }
    const std::uint32_t* end() const { return ids_.begin() + size_; }

  private:
    void grow() {
        Array<std::uint32_t> wider(size_ * 2 + 16);
        std::copy(begin(), end(), wider.begin());
        ids_ = std::move(wider);
    }

    Array<std::uint32_t> ids_;
    std::size_t size_ = 0;
};

struct Piece {
    Numbers ids;
    std::uint64_t lines = 0, controls = 0;
};

// `number_of(letters, key)` gives a word's number.
template <class NumberOf>
Piece read_lines(std::string_view text, bool drops_empty, NumberOf number_of) {
    Piece piece{Numbers(text.size() / 4 + 16)};
    const char* at = text.data();
    const char* const stop = at + text.size();
    while (at < stop) {
        bool is_empty = true;
        while (at < stop && *at != '\n') {
            if (*at == ' ' || *at == '\t') {
                ++at;
                continue;
            }
            const Word word = word_at(at, stop);
            at += word.letters.size();
            if (is_empty) piece.ids.push(kBegin);
            is_empty = false;
            std::uint32_t number = number_of(word.letters, word.key);
            if (number == kBegin || number == kEnd) [[unlikely]] {
                number = kUnknown;
                ++piece.controls;
            }
            piece.ids.push(number);
        }
        ++at;
        if (is_empty && drops_empty) continue;
        if (is_empty) piece.ids.push(kBegin);
        piece.ids.push(kEnd);
        ++piece.lines;
    }
    return piece;
}

// `threads` pieces of about one size that end with lines; some may be empty.
std::vector<std::string_view> cut(std::string_view text, std::size_t threads) {
    threads = std::max<std::size_t>(threads, 1);
    std::vector<std::string_view> pieces;
    std::size_t begin = 0;
    for (std::size_t t = 1; t <= threads; ++t) {
        std::size_t end = std::max(begin, part_begin(text.size(), t, threads));
        if (t < threads && end > begin) {
            const std::size_t line_end = text.find('\n', end - 1);
            end = line_end == std::string_view::npos ? text.size() : line_end + 1;
        }
        pieces.push_back(text.substr(begin, end - begin));
        begin = end;
    }
    return pieces;
}

// The pieces end to end; `numbers[t][i]` is what number i of piece t becomes, or the same where that is
// empty.
Tokens join(std::vector<Piece>& pieces, const std::vector<std::vector<std::uint32_t>>& numbers,
            std::size_t vocabulary) {
    Tokens tokens;
    std::vector<std::size_t> begins{0};
    for (const Piece& piece : pieces) {
        begins.push_back(begins.back() + piece.ids.size());
        tokens.lines += piece.lines;
        tokens.controls += piece.controls;
    }
    if (begins.back() > kMostTokens) throw Failure("the text has more than 2147483647 tokens");
    tokens.vocabulary = static_cast<std::uint32_t>(vocabulary);
    tokens.ids = Array<std::uint32_t>(begins.back(), Access::scattered);
    in_parallel(pieces.size(), [&](std::size_t t) {
        std::uint32_t* into = tokens.ids.data() + begins[t];
        if (numbers[t].empty()) {
            std::copy(pieces[t].ids.begin(), pieces[t].ids.end(), into);
        } else {
            for (const std::uint32_t id : pieces[t].ids) *into++ = numbers[t][id];
        }
        pieces[t].ids = Numbers();
    });
    return tokens;
}

}  // namespace

Tokens read_text(std::string_view text, Vocabulary& vocabulary, const TextOptions& options) {
    const std::vector<std::string_view> parts = cut(text, options.threads);
    std::vector<Piece> pieces(parts.size());
    // The first is not used: its piece's words have their numbers at once.
    std::vector<Vocabulary> own(parts.size());
    in_parallel(parts.size(), [&](std::size_t t) {
        Vocabulary& words = t ? own[t] : vocabulary;
        pieces[t] =
            read_lines(parts[t], options.drop_empty_lines,
                       [&words](std::string_view word, std::uint64_t key) { return words.add(word, key); });
    });
    // Piece by piece, and in each as they first appear: the same numbers as in one piece.
    std::vector<std::vector<std::uint32_t>> numbers(parts.size());
    for (std::size_t t = 1; t < parts.size(); ++t) {
        numbers[t].reserve(own[t].size());
        for (std::size_t i = 0; i < own[t].size(); ++i) {
            const std::string_view word = own[t].word(i);
            numbers[t].push_back(vocabulary.add(word, Vocabulary::key(word)));
        }
        own[t] = Vocabulary();
    }
    return join(pieces, numbers, vocabulary.size());
}

Tokens read_known(std::string_view text, const Vocabulary& vocabulary, const TextOptions& options) {
    const std::vector<std::string_view> parts = cut(text, options.threads);
    std::vector<Piece> pieces(parts.size());
    in_parallel(parts.size(), [&](std::size_t t) {
        pieces[t] = read_lines(
            parts[t], options.drop_empty_lines,
            [&vocabulary](std::string_view word, std::uint64_t key) { return vocabulary.find(word, key); });
    });
    return join(pieces, std::vector<std::vector<std::uint32_t>>(parts.size()), vocabulary.size());
}

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
