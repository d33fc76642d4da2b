// The checksum of a block of a model file: Σ_i mix(word_i + (i + 1) K) mod 2^64 over its 64-bit words.
//
// mix is a bijection, so that any change within one word is surely seen; i makes words that changed places
// seen; and a sum can be made in parts by several threads, in any order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace chainrule {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

inline std::uint64_t checksum_mix(std::uint64_t x) {
    x *= 0xFF51AFD7ED558CCDULL;
    x ^= x >> 32;
    return x * 0xC4CEB9FE1A85EC53ULL;
}

// The part of a block's checksum that `words` words give, the first of which is word `at` of the block.
inline std::uint64_t checksum(const char* bytes, std::size_t words, std::size_t at = 0) {
    constexpr std::uint64_t step = 0x9E3779B97F4A7C15ULL;
    std::uint64_t sum = 0, offset = (at + 1) * step;
    for (std::size_t i = 0; i < words; ++i, offset += step) {
        std::uint64_t word;
        std::memcpy(&word, bytes + 8 * i, 8);
        sum += checksum_mix(word + offset);
    }
    return sum;
}

}  // namespace chainrule
