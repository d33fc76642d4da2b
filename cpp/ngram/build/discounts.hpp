// Discounts of modified Kneser–Ney from counts of counts: discounts.py.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.hpp"
#include "base/error.hpp"

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

// The steps of interpolated Kneser–Ney that training in memory and training within a limit of memory have in
// common. Both do these very operations in this order, so that their models have the same bytes: whoever
// includes it is compiled with -ffp-contract=off (CMakeLists.txt).

using DiscountRow = std::array<double, 4>;  // by count: 0, 1, 2, 3 and more

inline std::size_t discount_kind(std::uint32_t count) { return std::min(count, 3u); }

// c(h) and γ(h) of a context.
struct Mass {
    double total, gamma;
};

// The words seen behind one context h, counted up: integers, so that no order of adding shows.
class Behind {
  public:
    void keep(std::uint32_t count) {
        ++N_[discount_kind(count)];
        total_ += count;
    }
    // Cut off: nothing of its count is kept for it.
    void leave_out(std::uint32_t count) {
        left_out_ += count;
        total_ += count;
    }
    // γ(h) = 1 − Σ_kept (c − D(c)) / c(h) = (D1 N1 + D2 N2 + D3 N3+ + Σ_left out c) / c(h).
    Mass mass(const DiscountRow& D) const {
        if (total_ == 0) return {1.0, 1.0};
        const double taken = D[1] * static_cast<double>(N_[1]) + D[2] * static_cast<double>(N_[2]) +
                             D[3] * static_cast<double>(N_[3]) + static_cast<double>(left_out_);
        return {static_cast<double>(total_), taken / static_cast<double>(total_)};
    }

  private:
    std::array<std::uint64_t, 4> N_{};
    std::uint64_t total_ = 0, left_out_ = 0;
};

// What of p(w | h) rests on (h, w) itself: max(c − D(c), 0) / c(h).
inline double share_of(std::uint32_t count, const DiscountRow& D, double total) {
    return std::max(static_cast<double>(count) - D[discount_kind(count)], 0.0) / total;
}

// One cut-off for each order, none given meaning 0: n-grams that are counted this often or less are left out.
// Order 1 keeps every word, and cut-offs never fall, so that the context and the suffix of what is kept,
// being counted as often or oftener, are kept too.
inline std::vector<std::uint32_t> checked_cut_offs(std::vector<std::uint32_t> cut_offs, std::size_t order) {
    if (cut_offs.empty()) cut_offs.assign(order, 0);
    if (cut_offs.size() != order)
        throw Failure("there are " + std::to_string(cut_offs.size()) + " cut-offs for " +
                      std::to_string(order) + " orders; give one for each");
    if (cut_offs[0] != 0 || !std::is_sorted(cut_offs.begin(), cut_offs.end()))
        throw Failure("cut-offs must start with 0 and never fall, as in 0,0,1");
    return cut_offs;
}

}  // namespace chainrule
