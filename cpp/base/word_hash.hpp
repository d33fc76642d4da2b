// A hash of a word, eight bytes at a time, mixed by multiplication.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace chainrule {

inline std::uint64_t word_hash(std::string_view word, std::uint64_t seed) {
    std::uint64_t h = seed ^ word.size();
    while (!word.empty()) {
        std::uint64_t part = 0;
        const std::size_t n = word.size() < 8 ? word.size() : 8;
        std::memcpy(&part, word.data(), n);
        h = (h ^ part) * 0xFF51AFD7ED558CCDULL;
        h ^= h >> 32;
        word.remove_prefix(n);
    }
    return h;
}

}  // namespace chainrule
