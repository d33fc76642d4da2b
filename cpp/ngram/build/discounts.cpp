#include "ngram/build/discounts.hpp"

#include <algorithm>
#include <vector>

#include "base/parallel.hpp"

namespace chainrule {

std::array<std::uint64_t, 5> counts_of_counts(const UninitializedBuffer<std::uint32_t>& counts,
                                              std::size_t threads) {
    std::vector<std::array<std::uint64_t, 5>> histograms(threads);
    parallel_for(threads, [&](std::size_t t) {
        // Counted in a local array: neighbouring arrays in `histograms` share cache lines (false sharing).
        std::array<std::uint64_t, 6> histogram{};
        const std::size_t to = part_begin(counts.size(), t + 1, threads);
        for (std::size_t i = part_begin(counts.size(), t, threads); i < to; ++i)
            ++histogram[std::min(counts[i], 5u)];
        std::copy_n(histogram.begin(), 5, histograms[t].begin());
    });
    std::array<std::uint64_t, 5> n{};
    for (const auto& part : histograms)
        for (std::size_t r = 0; r < n.size(); ++r) n[r] += part[r];
    return n;
}

Discounts modified_discounts(const std::array<std::uint64_t, 5>& n) {
    Discounts discounts;
    discounts.n = n;
    discounts.of = kDefaultDiscounts;
    discounts.source = DiscountSource::missing_counts;
    if (std::any_of(n.begin() + 1, n.end(), [](std::uint64_t x) { return x == 0; })) return discounts;
    const double Y = static_cast<double>(n[1]) / static_cast<double>(n[1] + 2 * n[2]);
    discounts.source = DiscountSource::counts;
    for (std::size_t r = 1; r <= 3; ++r) {
        const double D = static_cast<double>(r) - static_cast<double>(r + 1) * Y *
                                                      static_cast<double>(n[r + 1]) /
                                                      static_cast<double>(n[r]);
        discounts.estimated[r] = D;
        if (!(D >= 0 && D <= static_cast<double>(r))) discounts.source = DiscountSource::out_of_range;
    }
    if (discounts.source == DiscountSource::counts) discounts.of = discounts.estimated;
    return discounts;
}

}  // namespace chainrule
