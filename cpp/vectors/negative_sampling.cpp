#include "vectors/negative_sampling.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace chainrule {

std::vector<double> weights_of(std::span<const std::uint64_t> counts, double power) {
    std::vector<double> weights(counts.size());
    std::transform(counts.begin(), counts.end(), weights.begin(),
                   [&](std::uint64_t n) { return std::pow(static_cast<double>(n), power); });
    return weights;
}

Noise::Noise(std::span<const double> weights) : cells_(weights.size()) {
    double sum = 0;
    for (const double weight : weights) sum += weight;
    if (weights.empty() || !(sum > 0) || !std::isfinite(sum))
        throw ArgumentError("noise needs words, with weights above 0 whose sum is finite");
    const double n = static_cast<double>(weights.size());
    std::vector<double> share(weights.size());  // scaled to mean 1: cells below 1 are filled from cells above
    std::vector<std::uint32_t> small, large;
    for (std::uint32_t i = 0; i < weights.size(); ++i) {
        share[i] = weights[i] / sum * n;
        (share[i] < 1 ? small : large).push_back(i);
    }
    while (!small.empty() && !large.empty()) {
        const std::uint32_t low = small.back(), high = large.back();
        small.pop_back();
        cells_[low] = {static_cast<std::uint32_t>(share[low] * 4294967295.0), high};
        share[high] -= 1 - share[low];
        if (share[high] < 1) {
            large.pop_back();
            small.push_back(high);
        }
    }
    for (const auto& rest : {small, large}) {
        for (const std::uint32_t i : rest) cells_[i] = {4294967295U, i};
    }
}

std::uint32_t NoisePool::draw(const Noise& noise, Random& random) {
    constexpr std::uint32_t kWords = 256, kUses = 4;
    while (words_.size() < kWords) words_.push_back(noise.draw(random));
    std::uint32_t& slot = words_[random.below(kWords)];
    const std::uint32_t word = slot;
    if (++used_ % kUses == 0) slot = noise.draw(random);
    return word;
}

}  // namespace chainrule
