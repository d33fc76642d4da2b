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
#include <vector>

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

}  // namespace chainrule
