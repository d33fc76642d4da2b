// How an unknown word is written: a character n-gram, the compiled twin of ngram/spelling.py.
//
// log p(spelling | unknown) = Σ log p(character | those before it) + log p(end | …) − log_outside. A
// character's number is its place in the alphabet; behind these come any other character, the beginning and
// the end. The placeholder, the word by which a training text writes unknown words, has log_placeholder
// instead.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chainrule {

// The n-grams of one length, as tables.py has them: `keys` rise, each being the row of the n-gram without its
// last character · (alphabet + 3) + that character. Of length 1 the row is the character.
struct SpellerLevel {
    std::span<const std::int64_t> keys;
    std::span<const float> log_probs, log_backoffs;
};

struct SpellerFacts {
    std::vector<std::uint32_t> alphabet;  // code points, rising
    double log_others = 0;                // log of how many characters the alphabet has not
    double log_outside = 0;
    bool is_single = false;   // what is unknown is one character, and needs no end
    std::string placeholder;  // UTF-8; empty: there is none
    double log_placeholder = 0;
};

class Speller {
  public:
    // Error where the levels cannot be such tables.
    Speller(SpellerFacts facts, std::span<const SpellerLevel> levels);
    ~Speller();

    // Of a word in UTF-8; a byte that is none stands for a character that nobody knows.
    double log_prob(std::string_view word) const;

    // The same for one thread, short words that came lately being remembered. What it remembers is there for
    // the next reader too.
    class Reader {
      public:
        explicit Reader(const Speller& speller);
        ~Reader();
        Reader(const Reader&) = delete;
        Reader& operator=(const Reader&) = delete;
        double log_prob(std::string_view word);

      private:
        struct Memory;
        friend class Speller;
        const Speller& speller_;
        std::unique_ptr<Memory> memory_;
    };

  private:
    struct Slot {
        std::int64_t key = -1;  // −1: free
        float log_prob = 0, log_backoff = 0;
        std::int32_t row = -1;
    };
    // One length from 2 on: open addressing, at most half full.
    struct Level {
        std::vector<Slot> slots;
        const Slot* find(std::int64_t key) const;
    };
    struct First {
        float log_prob, log_backoff;
    };
    std::uint32_t number_of(std::uint32_t code) const;

    SpellerFacts facts_;
    std::array<std::uint32_t, 128> ascii_;
    std::vector<First> first_;
    std::vector<Level> levels_;
    mutable std::mutex mutex_;
    mutable std::vector<std::unique_ptr<Reader::Memory>> idle_;
};

}  // namespace chainrule
