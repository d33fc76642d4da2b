// A small reproducible random number generator; the Python reference implementation has the same one.
#pragma once

#include <cstdint>

namespace chainrule {

// xorshift64 (Marsaglia 2003) seeded by splitmix64, so that adjacent seeds give unrelated sequences.
class Random {
  public:
    explicit Random(std::uint64_t seed) {
        std::uint64_t z = seed + 0x9E3779B97F4A7C15ULL;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        state_ = (z ^ (z >> 31)) | 1;  // must not be 0
    }

    std::uint32_t next() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return static_cast<std::uint32_t>(state_ >> 16);
    }

    // Uniform in 0 … n − 1, by multiplication instead of division.
    std::uint32_t below(std::uint32_t n) {
        return static_cast<std::uint32_t>((static_cast<std::uint64_t>(next()) * n) >> 32);
    }

  private:
    std::uint64_t state_;
};

}  // namespace chainrule
