// Splits lines into words at blanks and tabs (as split_words in tokenizers/tokenizer.py), and counts them.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/input/text_reader.hpp"
#include "text/lines.hpp"
#include "text/punctuation.hpp"
#include "text/word_table.hpp"

namespace chainrule {

constexpr bool is_cut(char c) { return c == ' ' || c == '\t' || c == '\n'; }

// Sets the high bit of each byte of `x` that equals `c`; exact up to the lowest set bit.
constexpr std::uint64_t bytes_that_are(char c, std::uint64_t x) {
    constexpr std::uint64_t ones = 0x0101010101010101ULL;
    x ^= ones * static_cast<unsigned char>(c);
    return (x - ones) & ~x & (ones << 7);
}

// The word at `at`, scanned eight bytes at a time; most words end within the first eight.
inline Word word_at(const char* at, const char* stop) {
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
            // Bits before the separator; 0: the word ended with the previous eight bytes.
            const int bits = std::countr_zero(cuts) - 7;
            const auto length = static_cast<std::size_t>(end - at) + static_cast<std::size_t>(bits) / 8;
            const std::string_view letters(at, length);
            if (end == at) return {letters, x & ((std::uint64_t{1} << bits) - 1)};
            return Word::of(letters);
        }
    }
    while (end < stop && !is_cut(*end)) ++end;
    return Word::of(std::string_view(at, static_cast<std::size_t>(end - at)));
}

// Calls on_word(word) for each word and on_end() at each LF.
template <class OnWord, class OnEnd>
void scan_words(std::string_view lines, const OnWord& on_word, const OnEnd& on_end) {
    const char* at = lines.data();
    const char* const stop = at + lines.size();
    while (at < stop) {
        if (*at == '\n') {
            on_end();
            ++at;
        } else if (*at == ' ' || *at == '\t') {
            ++at;
        } else {
            const Word word = word_at(at, stop);
            at += word.letters.size();
            on_word(word);
        }
    }
}

struct WordCounts {
    WordTable words;
    std::vector<std::uint64_t> counts;  // by number
    std::vector<std::uint32_t> order;   // numbers by descending count, ties by bytes
};

// Words counted by one thread.
struct WordCounter {
    WordTable words;
    std::vector<std::uint64_t> counts;  // by number

    // Returns the number of the word.
    std::uint32_t add(const Word& word, std::uint64_t times) {
        const std::uint32_t number = words.add(word);
        if (number == counts.size()) counts.push_back(0);
        counts[number] += times;
        return number;
    }
};

// Merges the counters of several threads into the first and empties the others.
void merge_counters_unsorted(std::vector<WordCounter>& parts);

// Merges the counters of several threads and empties them. `numbers`, if set, receives for each thread the
// merged numbers by the numbers of the thread.
WordCounts merge_counters(std::vector<WordCounter>& parts,
                          std::vector<std::vector<std::uint32_t>>* numbers = nullptr);

}  // namespace chainrule
