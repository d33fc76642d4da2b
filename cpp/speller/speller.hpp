// Character n-gram model of the spelling of unknown words; implements ngram/oov_speller.py.
//
// log p(spelling | unknown) = Σ log p(character | those before it) + log p(end | …) − log_outside. A
// character's number is its index in the alphabet, followed by the numbers of any other character, the
// beginning and the end. The placeholder that represents unknown words in a training text has probability
// log_placeholder instead.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "speller/character_trie.hpp"

namespace chainrule {

// The n-grams of one length, as in tables.py: `keys` are ascending; a key is the row of the n-gram without
// its last character · (alphabet + 3) + that character. For length 1 the row is the character.
struct SpellerLevel {
    std::span<const std::int64_t> keys;
    std::span<const float> log_probs, log_backoffs;
};

// The logarithms of the rows of one order of a CharacterTrie.
struct SpellerLogs {
    std::vector<float> log_probs, log_backoffs;
};

struct SpellerConfig {
    std::vector<std::uint32_t> alphabet;  // code points, ascending
    double log_others = 0;                // log of the number of characters outside the alphabet
    double log_outside = 0;
    bool is_single = false;   // an unknown token is a single character, without end symbol
    std::string placeholder;  // UTF-8; empty: none
    double log_placeholder = 0;
};

class Speller {
  public:
    // Throws Error if the tables are invalid.
    Speller(SpellerConfig config, std::span<const SpellerLevel> levels);
    // The alphabet of `config` is that of the trie.
    Speller(SpellerConfig config, std::shared_ptr<const CharacterTrie> trie, std::vector<SpellerLogs> logs);
    ~Speller();

    // Log-probability of a word in UTF-8; an invalid byte counts as an unknown character.
    double log_prob(std::string_view word) const;

    // The same with a cache of recent short words, for use by one thread. The cache is reused by
    // the next scorer.
    class CachedScorer {
      public:
        explicit CachedScorer(const Speller& speller);
        ~CachedScorer();
        CachedScorer(const CachedScorer&) = delete;
        CachedScorer& operator=(const CachedScorer&) = delete;
        double log_prob(std::string_view word);

      private:
        struct Cache;
        friend class Speller;
        const Speller& speller_;
        std::unique_ptr<Cache> cache_;
    };

  private:
    // The n-grams of one length from 2 on: those behind row r of the length before are the rows
    // [first[r], first[r + 1]), by ascending character.
    struct Level {
        std::span<const std::uint32_t> first, word;
        SpellerLogs logs;
        std::int64_t find(std::int64_t context, std::uint32_t id) const;  // the row; −1: none
    };
    struct First {
        float log_prob, log_backoff;
    };
    void index_alphabet();
    std::uint32_t number_of(std::uint32_t code) const;

    SpellerConfig config_;
    std::array<std::uint32_t, 128> ascii_;
    std::vector<First> characters_;
    std::vector<Level> levels_;
    // What the levels view: a trie, or rows from keys.
    std::shared_ptr<const CharacterTrie> trie_;
    std::vector<std::vector<std::uint32_t>> rows_;
    mutable std::mutex mutex_;
    mutable std::vector<std::unique_ptr<CachedScorer::Cache>> idle_caches_;
};

}  // namespace chainrule
