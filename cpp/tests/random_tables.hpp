// Random n-gram tables with nodes of given sizes, for tests of layouts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "base/random.hpp"
#include "ngram/format/model_file.hpp"
#include "ngram/tables.hpp"

namespace chainrule::tests {

// Distinct words below `vocabulary`, sorted.
inline std::vector<std::uint32_t> some_words(Random& random, std::uint32_t count, std::uint32_t vocabulary) {
    if (count >= vocabulary / 2) {  // evenly spread
        std::vector<std::uint32_t> words;
        for (std::uint32_t i = 0; i < count; ++i)
            words.push_back(static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) * vocabulary / count));
        return words;
    }
    std::set<std::uint32_t> words;
    while (words.size() < count) words.insert(random.below(vocabulary));
    return {words.begin(), words.end()};
}

// Each size of `nodes` is the number of continuations of some row of every order below the highest, as far as
// there are rows and words; most rows have none or few. A few probabilities are 0.
inline std::vector<TableLevel> random_tables(std::size_t order, std::uint32_t vocabulary,
                                             const std::vector<std::uint32_t>& nodes, std::uint64_t seed) {
    Random random(seed);
    std::vector<TableLevel> levels(order);
    std::size_t contexts = 1;
    for (std::size_t n = 0; n < order; ++n) {
        std::vector<std::uint32_t> word, first{0};
        for (std::size_t i = 0; i < contexts; ++i) {
            std::uint32_t count = n == 0 ? vocabulary : random.below(8) == 0 ? random.below(3) : 0;
            const std::size_t chosen = (i + n) % (nodes.size() * 3 + 1);  // spread over the rows
            if (n > 0 && i < 12 * nodes.size() && chosen < nodes.size()) count = nodes[chosen];
            for (const std::uint32_t w : some_words(random, std::min(count, vocabulary), vocabulary))
                word.push_back(w);
            first.push_back(static_cast<std::uint32_t>(word.size()));
        }
        TableLevel& level = levels[n];
        level.word = UninitializedBuffer<std::uint32_t>(word.size());
        level.first = UninitializedBuffer<std::uint32_t>(first.size());
        level.log_prob = UninitializedBuffer<float>(word.size());
        std::ranges::copy(word, level.word.begin());
        std::ranges::copy(first, level.first.begin());
        if (n + 1 < order) level.log_backoff = UninitializedBuffer<float>(word.size());
        for (std::size_t i = 0; i < word.size(); ++i) {
            level.log_prob[i] = random.below(50) == 0 ? -std::numeric_limits<float>::infinity()
                                                      : -static_cast<float>(random.below(1000000)) / 65536;
            if (n + 1 < order) level.log_backoff[i] = static_cast<float>(random.below(1000)) / -256;
        }
        contexts = word.size();
    }
    return levels;
}

inline FileMetadata metadata_of(const std::vector<TableLevel>& levels, LayoutKind layout = LayoutKind::fast) {
    FileMetadata metadata;
    metadata.layout = layout;
    const auto words = static_cast<std::uint32_t>(levels[0].size());
    metadata.model = {words, std::min(1U, words - 1), std::min(2U, words - 1), 0, true, false, true, -0.25F};
    for (const TableLevel& level : levels) metadata.sizes.push_back(level.size());
    return metadata;
}

}  // namespace chainrule::tests
