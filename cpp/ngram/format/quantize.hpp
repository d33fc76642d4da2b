// Coding of one column (log-probabilities or back-off weights of one order) in few bits, and quantisation of
// a whole model.
//
// Lossless: an order has few distinct back-off weights, because they depend on small counts, so a code into a
// table suffices; a log-probability needs no sign bit; otherwise 32 bits. Lossy, 8 bits: 256 values by least
// squares. Zeros (no back-off weight) and infinities (probability 0) stay exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

enum class ColumnCoding : std::uint32_t {
    plain = 0,     // the 32 bits of the float
    signless = 1,  // 31 bits of a non-positive number; patterns above −inf are +0
    table = 2,     // index into a table of floats
};

inline constexpr unsigned kSignlessBits = 31, kPlainBits = 32, kMaxTableBits = 16;

// Encoder of one column.
class ColumnCodes {
  public:
    ColumnCoding coding = ColumnCoding::plain;
    unsigned bits = kPlainBits;
    std::vector<float> table;  // 2^bits values, so that every code is valid; or empty

    std::uint32_t code(float value) const;

  private:
    friend class ColumnStatistics;
    void find_exactly(const std::vector<std::uint32_t>& values);

    struct Slot {
        std::uint32_t value, code;
    };
    std::vector<Slot> slots_;  // exact values, open addressing
    std::vector<std::uint8_t>
        near_code_;  // codes of other values by their upper bits; empty if all are exact
};

// Statistics of a column, collected before it is written. The codes do not depend on the order of the values
// or on how several statistics are joined.
class ColumnStatistics {
  public:
    explicit ColumnStatistics(bool is_quantized);

    void add(std::span<const float> values);  // throws Error for NaN
    void join(const ColumnStatistics& other);
    ColumnCodes codes() const;
    // Codebook of a quantised column, ascending: its distinct values if there are at most 256.
    std::vector<float> codebook() const;

  private:
    void add_different(std::uint32_t value);
    void grow();
    ColumnCodes quantized() const;

    bool is_quantized_;
    std::uint64_t count_ = 0;
    bool can_drop_sign_ = true;
    std::size_t different_ = 0, most_different_;
    std::vector<std::uint32_t> slots_;  // distinct values, open addressing; empty once there are too many
    // Values with the same upper bits: their count and the sum of their lower bits.
    struct Bin {
        std::uint64_t count = 0, lower = 0;
    };
    std::vector<Bin> bins_;    // histogram of values that are not always exact
    std::uint32_t exact_ = 0;  // bit set of the values of kExact that occur
};

// A back-off model with probabilities rounded to 256 values per order and renormalised back-off weights.
//
// Rounding alone changes the sum after a context by several per cent. Here the weight of a context h is
// computed from the rounded model, shorter contexts first:
//
//   weight(h) = (1 − Σ_w q(w | h)) / (Z(h′) − Σ_w q(w | h′)), w over the words stored after h,
//
// where h′ is h without its first word and Z(h′) the sum of the rounded model after it. Log-weights are
// rounded to multiples of 2^−10, which changes a sum by less than 5e-4. If the rounded probabilities leave
// too little mass for the other words, some are rounded down; if no other words are left, codes are chosen to
// sum to one, and if that is impossible the largest probability is not rounded.
//
// Order 1 is not rounded. The model must be normalised.

class QuantizedRows final : public Rows {
  public:
    // `exact` must outlive this object. Takes 22 bytes per row below the highest order, and 1 byte per
    // row of that.
    QuantizedRows(const Rows& exact, std::size_t threads);

    std::size_t order() const override { return exact_.order(); }
    std::uint64_t size(std::size_t n) const override { return exact_.size(n); }
    void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word, float* log_prob,
              float* log_backoff, std::uint32_t* first) const override;

  private:
    struct Level {
        std::vector<float> codebook;             // ascending values of log p, at most 256; empty at order 1
        std::vector<double> probs;               // exp of each
        UninitializedBuffer<std::uint8_t> code;  // codebook index by row; empty at order 1
        std::vector<std::pair<std::uint32_t, float>> exceptions;  // rows stored with exact log p, sorted

        // Below the highest order.
        UninitializedBuffer<std::uint32_t> word, first;
        UninitializedBuffer<float> log_backoff;
        UninitializedBuffer<float> excess;  // Z − 1 after the row as a context
        // The longest stored proper suffix of this n-gram: its order (0 at order 1) and row.
        UninitializedBuffer<std::uint8_t> suffix_order;
        UninitializedBuffer<std::uint32_t> suffix_row;
    };

    struct Lower {  // probability of a word after a shorter context
        double prob;
        std::uint8_t order;  // order of the matched n-gram, and its row
        std::uint32_t row;
    };

    class Worker;

    void open_level(std::size_t n);
    void quantize_after(std::size_t m,
                        std::size_t threads);  // quantises the continuations of contexts of m words
    float log_prob_of(std::size_t n, std::uint32_t row) const;
    Lower lower(std::size_t m, std::uint32_t context, std::uint32_t word) const;

    const Rows& exact_;
    std::vector<Level> levels_;            // [n − 1]
    UninitializedBuffer<float> unigrams_;  // log p
    double unigram_sum_ = 0;
};

}  // namespace chainrule
