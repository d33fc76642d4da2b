// Rows of a model from the runs of all partitions: one range of first words at a time, and the ranges one
// behind the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ngram/partition/count_sums.hpp"
#include "ngram/partition/partition_plan.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// Returns the tables of a range as bytes, from the records of estimate_partition for this range, in any
// order.
std::string assemble_range(const PartitionPlan& plan, const GlobalEstimates& global, std::uint32_t range,
                           const std::vector<std::string_view>& records);

// Rows of the tables of consecutive ranges, which must be aligned and outlive this object.
class RangeRows final : public Rows {
  public:
    RangeRows(std::uint32_t order, const std::vector<std::string_view>& tables);

    std::size_t order() const override { return sizes_.size(); }
    std::uint64_t size(std::size_t n) const override { return sizes_[n - 1]; }
    void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word, float* log_prob,
              float* log_backoff, std::uint32_t* first) const override;

  private:
    struct Level {
        std::uint64_t begin;  // rows of the ranges before
        std::span<const std::uint32_t> word, first;
        std::span<const float> log_prob, log_backoff;
    };
    // First extension of a row; that of the end if `row` is the number of rows.
    std::uint64_t first_of(std::size_t n, std::uint64_t row) const;
    std::size_t range_of(std::size_t n, std::uint64_t row) const;

    std::vector<std::vector<Level>> ranges_;  // [range][order − 1]
    std::vector<std::uint64_t> sizes_;        // by order
};

}  // namespace chainrule
