#include "ngram/partition/partition_estimates.hpp"

#include <algorithm>
#include <array>

#include "base/buffer.hpp"
#include "base/byte_stream.hpp"
#include "base/logarithm.hpp"
#include "ngram/partition/context_runs.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kAhead = 24;  // prefetch distance in rows

// Estimates of one order.
class OrderEstimator {
  public:
    OrderEstimator(const PartitionCounts& counts, const GlobalEstimates& global, std::uint32_t n,
                   const std::vector<double>& shorter)
        : counts_(counts), global_(global), level_(counts.level(n)), n_(n), shorter_(shorter) {
        if (n < counts.order()) p_.resize(level_.size());
    }

    // Calls emit(first word, range of rows, log γ) for each context with n-grams above the cut-off; log p of
    // the rows is in `log_probs`.
    template <class Emit>
    std::vector<double> estimate(const Emit& emit) {
        for (std::size_t row = 0; row < level_.size();) {
            if (row + kAhead < level_.size()) prefetch(counts_.words(n_, row + kAhead));
            const std::size_t end = counts_.context_end(n_, row);
            const std::uint32_t split = counts_.split_of(n_, row);
            if (split == kNotSplit)
                estimate_context(row, end, emit);
            else if (!p_.empty())
                look_up(row, end, global_.split(split));
            row = end;
        }
        return std::move(p_);
    }

    bool is_kept(std::size_t row) const { return level_.count[row] > global_.cut_off(n_); }

  private:
    template <class Emit>
    void estimate_context(std::size_t from, std::size_t to, const Emit& emit) {
        const DiscountRow& D = global_.discount(n_);
        ContextCounts behind;
        std::uint32_t kept = 0;
        for (std::size_t row = from; row < to; ++row) {
            if (is_kept(row)) {
                behind.keep(level_.adjusted[row]);
                ++kept;
            } else {
                behind.add_pruned(level_.adjusted[row]);
            }
        }
        if (kept == 0) return;  // γ is 1, as of a context without n-grams
        const ContextMass mass = behind.mass(D);
        log_probs_.clear();
        for (std::size_t row = from; row < to; ++row) {
            if (!is_kept(row)) continue;  // no longer n-gram reads its p
            const double shorter =
                n_ == 2 ? global_.unigrams()[level_.suffix[row]] : shorter_[level_.suffix[row]];
            const double p = discounted_share(level_.adjusted[row], D, mass.total) + mass.gamma * shorter;
            if (!p_.empty()) p_[row] = p;
            log_probs_.push_back(static_cast<float>(logarithm(p)));
        }
        emit(from, to, static_cast<float>(logarithm(mass.gamma)), kept, log_probs_);
    }

    // p of the n-grams of a split context, both sorted by word.
    void look_up(std::size_t from, std::size_t to, const GlobalEstimates::SplitContext& context) {
        std::size_t at = 0;
        for (std::size_t row = from; row < to; ++row) {
            const std::uint32_t word = level_.word[row];
            while (at < context.words.size() && context.words[at] < word) ++at;
            if (at < context.words.size() && context.words[at] == word) p_[row] = context.p[at];
        }
    }

    const PartitionCounts& counts_;
    const GlobalEstimates& global_;
    const PartitionLevel& level_;
    std::uint32_t n_;
    const std::vector<double>& shorter_;  // p of the order below
    std::vector<double> p_;               // empty at the highest order
    std::vector<float> log_probs_;
};

}  // namespace

std::vector<std::pair<std::uint32_t, std::string>> estimate_partition(const PartitionCounts& counts,
                                                                      const GlobalEstimates& global,
                                                                      std::uint32_t partition) {
    const auto ranges = counts.plan().ranges();
    const auto range_count = static_cast<std::uint32_t>(ranges.size() - 1);
    std::vector<ByteWriter> records(range_count);
    std::vector<bool> has_runs(range_count);
    for (ByteWriter& record : records) record.varint(partition);
    std::vector<double> shorter;
    for (std::uint32_t n = 2; n <= counts.order(); ++n) {
        std::vector<RunWriter> writers(range_count, RunWriter(n));
        std::uint32_t range = 0;  // contexts are sorted by their first word
        std::array<std::uint32_t, 32> context;
        const std::vector<std::uint32_t>& words_of_rows = counts.level(n).word;
        OrderEstimator estimator(counts, global, n, shorter);
        shorter = estimator.estimate([&](std::size_t from, std::size_t to, float log_backoff,
                                         std::uint32_t kept, const std::vector<float>& log_probs) {
            const std::uint32_t* const words = counts.words(n, from);
            std::reverse_copy(words + 1, words + n, context.begin());
            while (context[0] >= ranges[range + 1]) ++range;
            has_runs[range] = true;
            writers[range].begin_run(std::span(context.data(), n - 1), log_backoff, kept);
            std::size_t at = 0;
            for (std::size_t row = from; row < to; ++row)
                if (estimator.is_kept(row)) writers[range].add(words_of_rows[row], log_probs[at++]);
        });
        for (std::uint32_t r = 0; r < range_count; ++r) writers[r].append_to(records[r]);
    }
    std::vector<std::pair<std::uint32_t, std::string>> result;
    for (std::uint32_t r = 0; r < range_count; ++r)
        if (has_runs[r]) result.emplace_back(r, records[r].take());
    return result;
}

}  // namespace chainrule
