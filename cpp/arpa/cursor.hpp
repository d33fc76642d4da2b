// The n-grams of a model in the order of their rows, each with the words of its context.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ngram/tables.hpp"

namespace chainrule {

// Goes from context to context by where their continuations begin, with a few rows of each order in hand: the
// texts of contexts are never all in memory.
class ContextCursor {
  public:
    // Stands at the context of row `row` of order `order`.
    ContextCursor(const Rows& rows, const std::vector<std::string>& names, std::uint32_t left_out,
                  std::size_t order, std::uint64_t row);

    // To the context of `row`, which is not before the last one.
    void move_to(std::uint64_t row) {
        if (order_ > 1 && at_.back().end <= row) move_on(row);
    }
    const std::string& text() const { return text_; }  // the context's words, a blank behind each
    bool is_left_out() const { return is_left_out_; }  // one of them is the word that is left out

  private:
    // The row of one order that the context goes through.
    struct At {
        std::uint64_t row = 0, end = 0;  // end of its continuations one order up
        std::size_t letters = 0;         // of the text before this word
        std::uint64_t held_from = 0;
        std::vector<std::uint32_t> word, first;  // of rows [held_from, …), and one more of `first`
    };

    void move_on(std::uint64_t row);
    void advance(std::size_t k, std::uint64_t until);
    void hold(std::size_t k);
    void spell();
    std::uint64_t parent(std::size_t n, std::uint64_t row) const;

    const Rows& rows_;
    const std::vector<std::string>& names_;
    std::uint32_t left_out_;
    std::size_t order_;
    std::vector<At> at_;       // [k] is of order k + 1; up to order − 1
    std::size_t changed_ = 0;  // words from this one on are not those of the text
    std::string text_;
    bool is_left_out_ = false;
};

}  // namespace chainrule
