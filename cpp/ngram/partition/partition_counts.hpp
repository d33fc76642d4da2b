// The n-grams of one partition with their counts, for orders 2 and higher.
//
// As in build/count.hpp, occurrences of order n become those of order n + 1 by a stable counting sort by the
// word to their left. Here an occurrence is a window, which stands for all its equals.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ngram/partition/partition_plan.hpp"
#include "ngram/partition/windows.hpp"

namespace chainrule {

// N-grams of one order, sorted by their words.
struct PartitionLevel {
    std::vector<std::uint32_t> window;   // a window that ends with the n-gram
    std::vector<std::uint32_t> suffix;   // row of the suffix one order down; at order 2 the last word
    std::vector<std::uint32_t> word;     // last word
    std::vector<std::uint32_t> context;  // number of the context, ascending
    std::vector<std::uint32_t> count;    // in this partition; saturates at 2^32 − 1
    std::vector<std::uint32_t>
        adjusted;  // count of Kneser–Ney: different words to the left, or the plain count

    std::size_t size() const { return window.size(); }
};

class PartitionCounts {
  public:
    // `plan` must outlive this object. Throws Error for a damaged record and if there are more than `limit`
    // windows.
    PartitionCounts(const PartitionPlan& plan, const std::vector<std::string_view>& records,
                    std::uint64_t limit = kMaxWindows);

    std::uint32_t order() const { return plan_.shape().order; }
    const PartitionPlan& plan() const { return plan_; }
    const PartitionLevel& level(std::uint32_t n) const { return levels_[n - 2]; }
    // Words of a row: [0] is the last word, then its context, nearest word first.
    const std::uint32_t* words(std::uint32_t n, std::size_t row) const {
        return windows_.window(level(n).window[row]);
    }
    // Number of the split context of the row, kNotSplit if the partition has all counts of its context.
    std::uint32_t split_of(std::uint32_t n, std::size_t row) const;
    // First row after `row` with another context.
    std::size_t context_end(std::uint32_t n, std::size_t row) const;

    // What other partitions need to know: records by last word modulo `parts` (count_sums.hpp).
    std::vector<std::pair<std::uint32_t, std::string>> sums(std::uint32_t parts) const;

  private:
    struct Occurrence {
        std::uint32_t window, row;
    };
    void count();
    void sort_by(std::uint32_t position, std::vector<Occurrence>& occurrences);
    PartitionLevel make_level(std::uint32_t n, std::vector<Occurrence>& occurrences);
    // Split suffixes of the context of a window.
    std::uint32_t depth_of(const std::uint32_t* window) const {
        return plan_.place([window](std::uint32_t k) { return window[1 + k]; }).depth;
    }

    const PartitionPlan& plan_;
    Windows windows_;
    std::vector<std::uint8_t> depths_;  // by window; empty if no context is split
    std::uint32_t largest_depth_ = 0;
    std::vector<PartitionLevel> levels_;
};

}  // namespace chainrule
