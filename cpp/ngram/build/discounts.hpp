// Discounts of modified Kneser–Ney smoothing from counts of counts (Chen & Goodman 1999, eq. 26).
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.hpp"
#include "base/error.hpp"

namespace chainrule {

enum class DiscountSource {
    counts,          // Chen & Goodman (1999), eq. 26
    missing_counts,  // defaults: one of n_1 … n_4 is 0
    out_of_range     // defaults: some D_r is outside [0, r]; see `estimated`
};

struct Discounts {
    std::array<double, 4> of{};  // D(0) = 0, D1, D2, D3+
    std::array<double, 4> estimated{};
    std::array<std::uint64_t, 5> n{};  // n_0 … n_4; n_0 is unused
    DiscountSource source = DiscountSource::counts;
};

inline constexpr std::array<double, 4> kDefaultDiscounts{0.0, 0.5, 1.0, 1.5};

std::array<std::uint64_t, 5> counts_of_counts(const UninitializedBuffer<std::uint32_t>& counts,
                                              std::size_t threads);
Discounts modified_discounts(const std::array<std::uint64_t, 5>& n);

// Steps of interpolated Kneser–Ney that in-memory and external training share. Both perform the same
// operations in the same order, so that their models have the same bytes; the folder is compiled with -ffp-
// contract=off.

using DiscountRow = std::array<double, 4>;  // by count: 0, 1, 2, 3 and more

template <std::unsigned_integral Count>
std::size_t discount_kind(Count count) {
    return static_cast<std::size_t>(std::min<Count>(count, 3));
}

// Total adjusted count c(h) of a context and its back-off weight γ(h).
struct ContextMass {
    double total, gamma;
};

// Statistics of the words that follow one context h. All sums are of integers, so the order of additions does
// not matter.
class ContextCounts {
  public:
    void keep(std::uint64_t count) {
        ++N_[discount_kind(count)];
        total_ += count;
    }
    // An n-gram removed by the cut-off: its whole count goes to the back-off weight.
    void add_pruned(std::uint64_t count) {
        left_out_ += count;
        total_ += count;
    }
    void merge(const ContextCounts& other) {
        for (std::size_t kind = 0; kind < N_.size(); ++kind) N_[kind] += other.N_[kind];
        total_ += other.total_;
        left_out_ += other.left_out_;
    }
    // γ(h) = 1 − Σ_kept (c − D(c)) / c(h) = (D1 N1 + D2 N2 + D3 N3+ + Σ_pruned c) / c(h).
    ContextMass mass(const DiscountRow& D) const {
        if (total_ == 0) return {1.0, 1.0};
        const double discounted = D[1] * static_cast<double>(N_[1]) + D[2] * static_cast<double>(N_[2]) +
                                  D[3] * static_cast<double>(N_[3]) + static_cast<double>(left_out_);
        return {static_cast<double>(total_), discounted / static_cast<double>(total_)};
    }

  private:
    std::array<std::uint64_t, 4> N_{};
    std::uint64_t total_ = 0, left_out_ = 0;
};

// The discounted relative frequency max(c − D(c), 0) / c(h).
template <std::unsigned_integral Count>
double discounted_share(Count count, const DiscountRow& D, double total) {
    return std::max(static_cast<double>(count) - D[discount_kind(count)], 0.0) / total;
}

// Validates count cut-offs, one per order (empty: no cut-offs): n-grams with this count or less are removed.
// Order 1 keeps every word, and cut-offs never decrease, so the context and the suffix of every kept n-gram
// are kept too.
inline std::vector<std::uint32_t> check_cut_offs(std::vector<std::uint32_t> cut_offs, std::size_t order) {
    if (cut_offs.empty()) cut_offs.assign(order, 0);
    if (cut_offs.size() != order)
        throw ArgumentError("there are " + std::to_string(cut_offs.size()) + " cut-offs for " +
                            std::to_string(order) + " orders; give one for each");
    if (cut_offs[0] != 0 || !std::is_sorted(cut_offs.begin(), cut_offs.end()))
        throw ArgumentError("cut-offs must start with 0 and never fall, as in 0,0,1");
    return cut_offs;
}

}  // namespace chainrule
