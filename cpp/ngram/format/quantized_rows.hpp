// A back-off model with probabilities rounded to 256 values of each order and back-off weights computed anew,
// so that the probabilities after every context still sum to one.
//
// Rounding alone changes the sum after a context by several per cent. Here the weight of a context h is
// computed from the rounded model itself, shorter contexts first:
//
//   weight(h) = (1 − Σ_w q(w | h)) / (Z(h') − Σ_w q(w | h')),  w over the words stored after h,
//
// h' being h without its first word and Z(h') what the rounded model sums to after it. Weights are rounded to
// multiples of 2^−10 in the logarithm, which moves a sum by less than 5e-4. Where the rounded probabilities
// leave too little for the other words, some are rounded down instead; where no other words are left, they
// are chosen to sum to one, and if no such choice exists, the largest of them is not rounded.
//
// Order 1 is not rounded. A model that is not normalised is not for this class.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

class QuantizedRows final : public Rows {
  public:
    // `exact` must outlive it. Takes 22 bytes a row below the highest order, and 1 byte a row of that.
    QuantizedRows(const Rows& exact, std::size_t threads);

    std::size_t order() const override { return exact_.order(); }
    std::uint64_t size(std::size_t n) const override { return exact_.size(n); }
    void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word, float* log_prob,
              float* log_backoff, std::uint32_t* first) const override;

  private:
    struct Level {
        std::vector<float> codebook;  // rising values of log p, at most 256; empty at order 1
        std::vector<double> probs;    // e to the power of each
        Array<std::uint8_t> code;     // by row, into the codebook; empty at order 1
        std::vector<std::pair<std::uint32_t, float>> exceptions;  // rows with log p of their own, sorted

        // Below the highest order.
        Array<std::uint32_t> word, first;
        Array<float> log_backoff;
        Array<float> excess;  // Z − 1 after the row as a context
        // The longest other n-gram that is stored and that this one ends with: its order (0 at order 1) and
        // row.
        Array<std::uint8_t> suffix_order;
        Array<std::uint32_t> suffix_row;
    };

    struct Lower {  // what the model says of a word after a shorter context
        double prob;
        std::uint8_t order;  // of the n-gram that says it, and its row
        std::uint32_t row;
    };

    class Worker;

    void open_level(std::size_t n);
    void quantize_after(std::size_t m, std::size_t threads);  // what follows the contexts of m words
    float log_prob_of(std::size_t n, std::uint32_t row) const;
    Lower lower(std::size_t m, std::uint32_t context, std::uint32_t word) const;

    const Rows& exact_;
    std::vector<Level> levels_;  // [n − 1]
    Array<float> unigrams_;      // log p
    double unigram_sum_ = 0;
};

}  // namespace chainrule
