#include <algorithm>
#include <limits>
#include <vector>

#include "checks.hpp"
#include "vectors/negative_sampling.hpp"

namespace chainrule::tests {

namespace {

void frequencies() {
    const std::vector<double> weights{1, 5, 3, 0, 10, 6, 1, 6};
    const Noise noise(weights);
    Random random(7);
    std::vector<int> drawn(weights.size());
    constexpr int kDraws = 400000;
    for (int i = 0; i < kDraws; ++i) ++drawn[noise.draw(random)];
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const double p = weights[i] / 32;
        const double spread = std::sqrt(p * (1 - p) / kDraws);
        check_close(static_cast<double>(drawn[i]) / kDraws, p, 5 * spread, "share of " + std::to_string(i));
    }
}

// The same frequencies with draws that are each used four times on average; the effective sample size is a
// seventh (E u² / E u of the geometric distribution). And many words with few draws.
void pool() {
    const std::vector<double> weights{1, 5, 3, 0, 10, 6, 1, 6};
    const Noise noise(weights);
    Random random(7);
    NoisePool pool;
    std::vector<int> drawn(weights.size());
    constexpr int kDraws = 400000;
    for (int i = 0; i < kDraws; ++i) ++drawn[pool.draw(noise, random)];
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const double p = weights[i] / 32;
        const double spread = std::sqrt(7 * p * (1 - p) / kDraws);
        check_close(static_cast<double>(drawn[i]) / kDraws, p, 5 * spread,
                    "pool: share of " + std::to_string(i));
    }
    const Noise many(std::vector<double>(100000, 1));
    std::vector<bool> is_met(100000);
    for (int i = 0; i < 4000; ++i) is_met[pool.draw(many, random)] = true;
    const auto met = std::count(is_met.begin(), is_met.end(), true);
    check(met > 900 && met < 1300, "4000 uses take about a thousand draws");
}

}  // namespace

static void test_noise() {
    frequencies();
    pool();
    Random random(1);
    check(Noise(std::vector<double>{3}).draw(random) == 0, "one word is always drawn");
    check_fails([] { Noise(std::vector<double>{}); }, "noise needs words");
    check_fails([] { Noise(std::vector<double>{0, 0}); }, "noise needs words");
    check_fails([] { Noise(std::vector<double>{1, std::numeric_limits<double>::infinity()}); }, "finite");
    bool is_below = true;
    for (int i = 0; i < 10000; ++i) is_below = is_below && random.below(3) < 3;
    check(is_below, "below(3) is 0, 1 or 2");
    check(Random(0).next() != Random(1).next(), "neighbouring seeds differ");
}

static const Test registered("noise", test_noise);

}  // namespace chainrule::tests
