// Which rows the threads of word2vec have copies of, and how these come together (hot_rows.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "word2vec.hpp"

namespace chainrule {

inline constexpr std::uint64_t kMeetEvery = 200000;  // words after which a thread shares its copies

// The parts of a thread's steps that the first rows take, which are those of the most frequent words; as many
// as are copied. CBOW has none: the more rows its threads copied the worse it learnt, however soon they met.
struct Parts {
    std::vector<float> input, output;
};
Parts parts_of_rows(const Word2vecConfig& config, std::span<const std::uint64_t> counts,
                    std::span<const std::uint32_t> keep);

}  // namespace chainrule
