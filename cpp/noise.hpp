// Drawing word numbers in proportion to given weights: Walker's alias table, two look-ups whatever the
// vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "random.hpp"

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

}  // namespace chainrule
