// The header of a model file, as it lies in the file.
//
//   FixedHeader | rows by order, 8 bytes each | SectionEntry of each section | checksum of each block, 8
//   bytes | zeros to a whole cache line, the last 8 bytes of which are the checksum of all before
#pragma once

#include <array>
#include <cstdint>

#include "ngram/format/model_file.hpp"

namespace chainrule {

inline constexpr std::array<char, 8> kMagic{'c', 'h', 'a', 'i', 'n', 'n', 'g', 'r'};
inline constexpr std::uint32_t kVersion = 2;
// Of quantised models, whose probabilities sum to one from this version on.
inline constexpr std::uint32_t kQuantizedVersion = 3;

struct FixedHeader {
    std::array<char, 8> magic = kMagic;
    std::uint32_t version = kVersion;
    std::uint32_t layout = 0, bits = 0, order = 0;
    std::uint32_t vocabulary = 0, begin = 0, end = 0, unknown = 0;
    // Of ModelFacts: 1 is_stream, 2 is_closed, 4 is_normalized, 8 holds_suffixes, 16 starts_at_begin.
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

}  // namespace chainrule
