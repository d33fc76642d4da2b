// Sampling word ids in proportion to weights with Walker's alias table: two lookups, independent of the
// vocabulary size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.hpp"

namespace chainrule {

// count^power of each word.
std::vector<double> weights_of(std::span<const std::uint64_t> counts, double power);

class Noise {
  public:
    explicit Noise(std::span<const double> weights);

    std::uint32_t draw(Random& random) const {
        const std::uint32_t i = random.below(static_cast<std::uint32_t>(cells_.size()));
        const Cell& cell = cells_[i];
        return random.next() < cell.keep ? i : cell.other;
    }

  private:
    struct Cell {
        std::uint32_t keep;   // probability of keeping this cell's word, times 2^32
        std::uint32_t other;  // alias
    };
    std::vector<Cell> cells_;
};

// A per-thread pool of noise words, each used a few times before it is replaced; otherwise threads would
// constantly fetch rows that another thread has just written. Each word is a draw from the noise
// distribution, so frequencies are unchanged, but draws within some hundred windows are not independent.
class NoisePool {
  public:
    std::uint32_t draw(const Noise& noise, Random& random);

  private:
    std::vector<std::uint32_t> words_;
    std::uint32_t used_ = 0;
};

}  // namespace chainrule
