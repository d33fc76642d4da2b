// Modified Kneser–Ney estimates of the n-grams of one partition.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ngram/partition/count_sums.hpp"
#include "ngram/partition/partition_counts.hpp"

namespace chainrule {

// Returns the runs of all orders as one record per range of first words; ranges without runs have none. The
// same operations in the same order as estimate_kneser_ney, so that the probabilities are the same bit for
// bit.
std::vector<std::pair<std::uint32_t, std::string>> estimate_partition(const PartitionCounts& counts,
                                                                      const GlobalEstimates& global,
                                                                      std::uint32_t partition);

}  // namespace chainrule
