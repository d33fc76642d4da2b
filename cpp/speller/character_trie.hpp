// Counts of the character n-grams of words in bounded memory, and their Witten–Bell estimates (Witten & Bell
// 1991, method C) with the operations of ngram/smoothing.py in the same order, so that the results have the
// same bits.
//
// Every n-gram is a prefix of the characters from some position of a word on. These windows are sorted, a
// range of first characters at a time, and the distinct prefixes of length n in their order are the rows of
// order n.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace chainrule {

// Calls visit(word, count) for each word (UTF-8), any number of times and in any order.
using VisitWord = std::function<void(std::string_view word, std::uint64_t count)>;
using WordSource = std::function<void(const VisitWord&)>;

class CharacterTrie {
  public:
    static constexpr std::size_t kMaxOrder = 6;
    static constexpr std::size_t kWindows = std::size_t{1} << 20;  // windows sorted at once: 24 MiB

    // The n-grams of one order, sorted by context, then by character. The children of row r are the rows
    // [first[r], first[r + 1]) of the next order; at the highest order `first` is empty.
    struct Level {
        std::vector<std::uint32_t> word, first;
        std::vector<std::uint64_t> count;
    };

    // Counts the n-grams up to `order` of each word with its beginning and end; of single characters, order 1
    // and without an end, if `is_single`.
    CharacterTrie(const WordSource& words, std::size_t order, bool is_single, std::size_t windows = kWindows);

    // A trie with these rows; throws ArgumentError unless they form one. The counts may be those of any text.
    CharacterTrie(std::vector<std::uint32_t> alphabet, std::vector<Level> levels);

    // The characters in ascending order; a character's id is its index, followed by the ids of any other
    // character, the beginning and the end.
    const std::vector<std::uint32_t>& alphabet() const { return alphabet_; }
    std::uint32_t size() const { return static_cast<std::uint32_t>(alphabet_.size()) + 3; }
    std::uint32_t begin() const { return size() - 2; }
    std::uint32_t end() const { return size() - 1; }
    const std::vector<Level>& levels() const { return levels_; }

    // The probabilities of the rows of one order, and the back-off weights of their contexts.
    struct Estimate {
        std::vector<double> p, gamma;
    };
    // Estimates order n from the probabilities of order n − 1, or from the uniform distribution by id at
    // order 1; called once for n = 1, 2, … in turn, because it releases the counts.
    Estimate estimate(std::size_t n, std::span<const double> shorter);

  private:
    struct Window;
    class Collector;
    void read_alphabet(const WordSource& words);
    void count_windows(const WordSource& words, std::size_t windows, bool is_single);
    void add_sorted(std::span<Window> windows);
    void push(std::size_t n, std::uint32_t word);
    void find_suffixes(std::size_t n);

    std::vector<std::uint32_t> alphabet_;
    std::vector<Level> levels_;
    std::size_t estimated_ = 0;            // orders
    std::vector<std::uint32_t> suffixes_;  // rows of w_2 … w_n of the order estimated last
};

// The character at `at`, which advances; the largest value for invalid UTF-8.
std::uint32_t next_character(const char*& at, const char* end);

}  // namespace chainrule
