// Discounts of modified Kneser–Ney from counts of counts: discounts.py.
#pragma once

#include <array>
#include <cstdint>

#include "base/buffer.hpp"

namespace chainrule {

enum class DiscountSource {
    counts,    // as Chen & Goodman (1999), eq. 26, has them
    too_few,   // the fall-back: some n_1 … n_4 is 0
    senseless  // the fall-back: some D_r came out below 0 or above r; `estimated` has them
};

struct Discounts {
    std::array<double, 4> of{};  // D(0) = 0, D1, D2, D3+
    std::array<double, 4> estimated{};
    std::array<std::uint64_t, 5> n{};  // n_0 … n_4; n_0 is of no use
    DiscountSource source = DiscountSource::counts;
};

inline constexpr std::array<double, 4> kFallback{0.0, 0.5, 1.0, 1.5};

std::array<std::uint64_t, 5> counts_of_counts(const Array<std::uint32_t>& counts, std::size_t threads);
Discounts modified_discounts(const std::array<std::uint64_t, 5>& n);

}  // namespace chainrule
