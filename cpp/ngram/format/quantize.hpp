// How one column of numbers (the probabilities, or the back-off weights, of one order) is written in few
// bits.
//
// Without loss: a back-off weight depends on a few small counts, so that an order has few different ones, and
// a code into a table of them is enough; a logarithm of a probability needs no sign; else all 32 bits stand.
// With loss, in 8 bits: 256 values that are near all others in the least squares. Zeros (a context that has
// no weight) and infinities (no probability) are exact even then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

enum class Coding : std::uint32_t {
    plain = 0,     // the 32 bits of the float
    signless = 1,  // 31 bits of a number that is −0 or below; what is above those of −inf is +0
    table = 2,     // a number into a table of floats
};

inline constexpr unsigned kSignlessBits = 31, kPlainBits = 32, kMostTableBits = 16;

// A column as it will be written.
class Codes {
  public:
    Coding coding = Coding::plain;
    unsigned bits = kPlainBits;
    std::vector<float> table;  // 2^bits values, so that no code of these bits is out of it; or none

    std::uint32_t code(float value) const;

  private:
    friend class ColumnSurvey;
    void find_exactly(const std::vector<std::uint32_t>& values);

    struct Slot {
        std::uint32_t value, code;
    };
    std::vector<Slot> slots_;              // of the values that are exact: open addressing
    std::vector<std::uint8_t> near_code_;  // of all others, by their upper bits; none where all are exact
};

// What must be known of a column before it can be written. Numbers may be added in any order, and by several
// surveys that are joined: the codes are the same.
class ColumnSurvey {
  public:
    explicit ColumnSurvey(bool is_quantized);

    void add(std::span<const float> values);  // throws Failure where one is not a number
    void join(const ColumnSurvey& other);
    Codes codes() const;
    // Of a quantised column: its values, or those that stand for them where there are more than 256; rising.
    std::vector<float> codebook() const;

  private:
    void add_different(std::uint32_t value);
    void grow();
    Codes quantized() const;

    bool is_quantized_;
    std::uint64_t count_ = 0;
    bool can_drop_sign_ = true;
    std::size_t different_ = 0, most_different_;
    std::vector<std::uint32_t> slots_;  // different values: open addressing; none once they are too many
    // Of the numbers that share their upper bits: how many there are, and the sum of their lower bits.
    struct Bin {
        std::uint64_t count = 0, lower = 0;
    };
    std::vector<Bin> bins_;    // of the numbers that are not exact in any case
    std::uint32_t exact_ = 0;  // which of kExact there are, a bit each
};

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
