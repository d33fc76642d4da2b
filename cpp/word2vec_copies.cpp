#include "word2vec_copies.hpp"

#include <algorithm>
#include <numeric>

#include "hot_rows.hpp"
#include "noise.hpp"
#include "rows.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kRows = 4096;       // of each matrix, at most …
constexpr std::size_t kBytes = 32 << 20;  // … and of all threads together
constexpr float kAddedUp = 2;             // threads whose steps a row takes whole, at most

}  // namespace

// By how often a thread is expected to change a row from one meeting to the next.
Parts parts_of_rows(const Word2vecConfig& config, std::span<const std::uint64_t> counts,
                    std::span<const std::uint32_t> keep) {
    if (config.is_cbow) return {};
    const std::size_t copies = 4 * config.threads;  // own and before, of input and output
    const std::size_t rows =
        std::min({kRows, counts.size(), kBytes / (copies * padded(config.dimensions) * sizeof(float))});
    const auto between = static_cast<double>(kMeetEvery);
    const std::vector<double> weights = weights_of(counts, config.power);
    const double words = std::accumulate(counts.begin(), counts.end(), 0.0);
    const double noise = std::accumulate(weights.begin(), weights.end(), 0.0);
    Parts parts;
    const auto add = [&](std::vector<float>& to, std::size_t row, double steps) {
        const float part = part_of_steps(steps, config.threads);
        // The steps of many threads that began at one place go too far where they are added up: such a row is
        // not copied, nor is a rarer one.
        if (to.size() == row && part * static_cast<float>(config.threads) <= kAddedUp) to.push_back(part);
    };
    for (std::size_t row = 0; row < rows; ++row) {
        const double kept =
            between * static_cast<double>(keep[row]) / kAlways * static_cast<double>(counts[row]) / words;
        const double drawn = between * static_cast<double>(config.negative) * weights[row] / noise;
        add(parts.input, row, kept * static_cast<double>(config.window + 1));
        add(parts.output, row, kept + drawn);
    }
    return parts;
}

}  // namespace chainrule
