// Drawing word numbers in proportion to given weights: Walker's alias table, two look-ups whatever the
// vocabulary.
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
        std::uint32_t keep;   // this cell's own share, of 2^32
        std::uint32_t other;  // who has the rest of it
    };
    std::vector<Cell> cells_;
};

// Noise words of a thread's own, each used a few times before another draw takes its place: else every thread
// asks for rows that another has just written, faster than they can be sent. Each word here is a draw from
// the noise, so that words are used as often as without it, only not independently of each other for some
// hundred windows.
class NoisePool {
  public:
    std::uint32_t draw(const Noise& noise, Random& random);

  private:
    std::vector<std::uint32_t> words_;
    std::uint32_t used_ = 0;
};

}  // namespace chainrule
