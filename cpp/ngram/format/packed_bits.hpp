// Numbers of any width packed without gaps, and bits that are counted and found: what the layout "small" is
// made of. Bit i of a block of bytes is bit i % 8 of byte i / 8, so that the bytes are the same everywhere.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace chainrule {

// The most bits that one load at any bit position is sure to hold: 64, less up to 7 before the position.
inline constexpr unsigned kWidestLoad = 57;
// Bytes that must lie behind the last packed number, since loads take eight, or twice eight.
inline constexpr std::uint64_t kPackedSlack = 16;

static_assert(std::endian::native == std::endian::little, "packed numbers are little-endian");

inline std::uint64_t load_little(const char* from) {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

inline void store_little(char* into, std::uint64_t word) { std::memcpy(into, &word, sizeof word); }

inline std::uint64_t low_bits(unsigned width) {
    return width >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
}

// The kWidestLoad bits, or a few more, from bit position `at` on.
inline std::uint64_t load_bits(const char* packed, std::uint64_t at) {
    return load_little(packed + (at >> 3)) >> (at & 7);
}

// Packs numbers one behind the other into whole words of 64 bits; 64 numbers of any width are whole words.
class BitPacker {
  public:
    explicit BitPacker(char* into) : into_(into) {}

    // `number` is below 2^width, and width at most 32.
    void put(std::uint64_t number, unsigned width) {
        word_ |= number << filled_;
        filled_ += width;
        if (filled_ < 64) return;
        store_little(into_, word_);
        into_ += 8;
        filled_ -= 64;
        word_ = filled_ ? number >> (width - filled_) : 0;
    }

    // The last word, if it is not full; where the packed bytes end.
    char* finish() {
        if (filled_ == 0) return into_;
        store_little(into_, word_);
        filled_ = 0;
        return into_ += 8;
    }

  private:
    char* into_;
    std::uint64_t word_ = 0;
    unsigned filled_ = 0;
};

// Ones of each byte of a word, each in its byte.
inline std::uint64_t ones_by_byte(std::uint64_t word) {
    word -= word >> 1 & 0x5555555555555555ULL;
    word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL);
    return (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0FULL;
}

inline unsigned count_ones(std::uint64_t word) {
    return static_cast<unsigned>(ones_by_byte(word) * 0x0101010101010101ULL >> 56);
}

// Where the one number k = 0 … 63 of a word stands; some number up to 64 where it has no more than k. Without
// branches, which would be taken at random (Vigna 2008).
inline unsigned find_one(std::uint64_t word, unsigned k) {
    constexpr std::uint64_t each = 0x0101010101010101ULL, tops = each << 7;
    const std::uint64_t wanted = (k + 1) * each;
    const std::uint64_t upto = ones_by_byte(word) * each;  // byte i: ones of bytes 0 … i, at most 64
    // A byte keeps its top bit where there are more than k ones up to it: the first such byte has the one.
    const std::uint64_t beyond = ((upto | tops) - wanted) & tops;
    const unsigned byte = static_cast<unsigned>(std::countr_zero(beyond)) & 56U;
    // The same with each bit of that byte in a byte of its own.
    const std::uint64_t before = ((upto << 8) >> byte & 0xFF) * each;
    const std::uint64_t bits = (word >> byte & 0xFF) * each & 0x8040201008040201ULL;
    const std::uint64_t ones = ((bits + 0x7F7F7F7F7F7F7F7FULL) | bits) >> 7 & each;
    const std::uint64_t reached = (((ones * each + before) | tops) - wanted) & tops;
    return byte + (static_cast<unsigned>(std::countr_zero(reached)) >> 3);
}

}  // namespace chainrule
