// Rows of a model in temporary files.
#pragma once

#include <memory>
#include <vector>

#include "base/temp_file.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// One order: a number of 32 bits a row in each file, `first` with one more.
struct SpilledLevel {
    SpillFile word, log_prob, log_backoff, first;  // the last two not at the highest order
    std::uint64_t size = 0;
};

class SpilledRows final : public Rows {
  public:
    explicit SpilledRows(std::vector<SpilledLevel> levels) : levels_(std::move(levels)) {}
    std::size_t order() const override { return levels_.size(); }
    std::uint64_t size(std::size_t n) const override { return levels_[n - 1].size; }
    void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word, float* log_prob,
              float* log_backoff, std::uint32_t* first) const override;

  private:
    std::vector<SpilledLevel> levels_;
};

}  // namespace chainrule
