// Bit packing and rank/select for the compact layout. Bit i of a byte sequence is bit i % 8 of byte i / 8, so
// the bytes are the same on every machine.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace chainrule {

// Bits guaranteed in one load at any bit position: 64 minus up to 7.
inline constexpr unsigned kWidestLoad = 57;
// Padding bytes required after the last packed number: loads read 8 or 16 bytes.
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

// At least kWidestLoad bits from bit position `at` on.
inline std::uint64_t load_bits(const char* packed, std::uint64_t at) {
    return load_little(packed + (at >> 3)) >> (at & 7);
}

// Packs numbers consecutively into 64-bit words; 64 numbers of any width fill whole words.
class BitPacker {
  public:
    explicit BitPacker(char* into) : into_(into) {}

    // `number` < 2^width, width ≤ 32.
    void put(std::uint64_t number, unsigned width) {
        word_ |= number << filled_;
        filled_ += width;
        if (filled_ < 64) return;
        store_little(into_, word_);
        into_ += 8;
        filled_ -= 64;
        word_ = filled_ ? number >> (width - filled_) : 0;
    }

    // Writes the last partial word; returns the end of the packed bytes.
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

// Population count of each byte, in its byte.
inline std::uint64_t ones_by_byte(std::uint64_t word) {
    word -= word >> 1 & 0x5555555555555555ULL;
    word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL);
    return (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0FULL;
}

inline unsigned count_ones(std::uint64_t word) {
    return static_cast<unsigned>(ones_by_byte(word) * 0x0101010101010101ULL >> 56);
}

// Select: position of the k-th one (from 0) of a word; unspecified up to 64 if there are fewer. Branch-free
// (Vigna 2008).
inline unsigned find_one(std::uint64_t word, unsigned k) {
    constexpr std::uint64_t ones_bytes = 0x0101010101010101ULL, tops = ones_bytes << 7;
    const std::uint64_t target = (k + 1) * ones_bytes;
    const std::uint64_t upto = ones_by_byte(word) * ones_bytes;  // byte i: ones of bytes 0 … i, at most 64
    // The first byte whose cumulative count exceeds k keeps its top bit.
    const std::uint64_t beyond = ((upto | tops) - target) & tops;
    const unsigned byte = static_cast<unsigned>(std::countr_zero(beyond)) & 56U;
    // The same within that byte, one bit per byte.
    const std::uint64_t before = ((upto << 8) >> byte & 0xFF) * ones_bytes;
    const std::uint64_t bits = (word >> byte & 0xFF) * ones_bytes & 0x8040201008040201ULL;
    const std::uint64_t ones = ((bits + 0x7F7F7F7F7F7F7F7FULL) | bits) >> 7 & ones_bytes;
    const std::uint64_t reached = (((ones * ones_bytes + before) | tops) - target) & tops;
    return byte + (static_cast<unsigned>(std::countr_zero(reached)) >> 3);
}

}  // namespace chainrule
