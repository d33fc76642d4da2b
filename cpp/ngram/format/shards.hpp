// Shards of a model by ranges of first words. Because rows are sorted by context, the n-grams that begin with
// a range of words are consecutive in every order, so a shard is itself a model: order 1 is complete (log p
// of all words; back-off weights of the words of the range), and each higher order is a slice of the whole
// model. The shards of consecutive ranges joined in order give the rows of the whole model again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ngram/tables.hpp"

namespace chainrule {

// The words [from, to).
struct WordRange {
    std::uint32_t from = 0, to = 0;
};

// Limits 0 = b[0] ≤ b[1] ≤ … ≤ b[shards] = V of ranges of first words: range s is [b[s], b[s + 1]). The
// ranges have about equal numbers of rows above order 1; words are not divided, so a range can be empty.
std::vector<std::uint32_t> shard_bounds(const Rows& rows, std::size_t shards);

// Rows of one shard of `whole`, which must outlive this object.
class ShardRows final : public Rows {
  public:
    ShardRows(const Rows& whole, WordRange range);

    std::size_t order() const override { return whole_.order(); }
    std::uint64_t size(std::size_t n) const override {
        return n == 1 ? whole_.size(1) : to_[n - 1] - from_[n - 1];
    }
    void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word, float* log_prob,
              float* log_backoff, std::uint32_t* first) const override;

  private:
    const Rows& whole_;
    std::vector<std::uint64_t> from_, to_;  // rows of the whole model by n − 1; words at order 1
};

// Rows of consecutive shards as one model. `parts` must outlive this object and cover all words.
class JoinedRows final : public Rows {
  public:
    struct Part {
        const Rows* rows;
        WordRange range;
    };

    explicit JoinedRows(std::vector<Part> parts);

    std::size_t order() const override { return starts_.size(); }
    std::uint64_t size(std::size_t n) const override { return starts_[n - 1].back(); }
    void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word, float* log_prob,
              float* log_backoff, std::uint32_t* first) const override;

  private:
    std::vector<Part> parts_;
    std::vector<std::vector<std::uint64_t>> starts_;  // [n − 1][s]: first row of part s; the size at the end
};

}  // namespace chainrule
