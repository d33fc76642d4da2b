// The header of a model file and its checksums, as stored.
//
//   FixedHeader | rows per order, 8 bytes each | SectionEntry per section | checksum per block, 8 bytes |
//   zero padding to a cache line, whose last 8 bytes are the checksum of the header
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ngram/format/model_file.hpp"

namespace chainrule {

inline constexpr std::array<char, 8> kMagic{'c', 'h', 'a', 'i', 'n', 'n', 'g', 'r'};
inline constexpr std::uint32_t kVersion = 2;
// Version of quantised models, whose probabilities sum to one from this version on.
inline constexpr std::uint32_t kQuantizedVersion = 3;

struct FixedHeader {
    std::array<char, 8> magic = kMagic;
    std::uint32_t version = kVersion;
    std::uint32_t layout = 0, bits = 0, order = 0;
    std::uint32_t vocabulary = 0, begin = 0, end = 0, unknown = 0;
    // Of ModelMetadata: 1 is_stream, 2 is_closed, 4 is_normalized, 8 holds_suffixes, 16 starts_at_begin.
    std::uint32_t flags = 0;
    float log_missing = 0;
    std::uint32_t sections = 0, zero = 0;
    std::uint64_t header = 0, file = 0;  // bytes of each
};
static_assert(sizeof(FixedHeader) == 72);

struct SectionEntry {
    std::uint32_t id = 0, zero = 0;
    std::uint64_t from = 0, size = 0;  // from the beginning of the file
};
static_assert(sizeof(SectionEntry) == 24);

inline std::uint64_t whole_lines(std::uint64_t bytes) {
    return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

inline std::uint64_t block_count(std::uint64_t data_bytes) { return (data_bytes + kBlock - 1) / kBlock; }

inline std::uint64_t header_bytes(std::uint64_t order, std::uint64_t sections, std::uint64_t blocks) {
    return whole_lines(sizeof(FixedHeader) + 8 * order + sizeof(SectionEntry) * sections + 8 * blocks + 8);
}

// Checksum of a block: Σ_i mix(word_i + (i + 1) K) mod 2^64 over its 64-bit words. mix is a bijection, so any
// change within one word is detected; i makes exchanged words detectable; and partial sums of several threads
// can be added in any order.

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
