#include "ngram/build/kneser_ney.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/buffer.hpp"
#include "base/logarithm.hpp"
#include "base/parallel.hpp"
#include "ngram/build/discounts.hpp"
#include "ngram/build/prune.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kAhead = 48;  // prefetch distance in rows

void put(std::uint32_t* at, double log) {
    const auto value = static_cast<float>(log);
    std::memcpy(at, &value, sizeof value);
}

// Collects the probabilities of consecutive rows, starting at `row`, and takes their logarithms in blocks,
// which vectorises. Logarithms go to `logs`, the probabilities to `kept` unless it is null.
class ProbabilityRows {
  public:
    ProbabilityRows(std::size_t row, std::uint32_t* logs, double* kept_rows)
        : row_(row), logs_(logs), probs_out_(kept_rows) {}

    void push(double p) {
        gathered_[size_++] = p;
        if (size_ == kGathered) flush();
    }
    void flush() {
        if (probs_out_) std::copy_n(gathered_.begin(), size_, probs_out_ + row_);
        std::array<float, kGathered> logs;
        for (std::size_t i = 0; i < kGathered; ++i) logs[i] = static_cast<float>(logarithm(gathered_[i]));
        std::memcpy(logs_ + row_, logs.data(), size_ * sizeof(float));
        row_ += size_;
        size_ = 0;
    }

  private:
    static constexpr std::size_t kGathered = 512;

    std::size_t row_, size_ = 0;
    std::uint32_t* logs_;
    double* probs_out_;
    std::array<double, kGathered> gathered_{};
};

// c(h) and γ(h) of the context whose n-grams are rows [from, to).
template <bool is_cut>
ContextMass mass_of(const std::uint32_t* counts, const KeptRows& kept_rows, std::size_t from, std::size_t to,
                    const DiscountRow& D) {
    ContextCounts behind;
    for (std::size_t i = from; i < to; ++i)
        if (!is_cut || kept_rows[i])
            behind.keep(counts[i]);
        else
            behind.add_pruned(counts[i]);
    return behind.mass(D);
}

// Order 1, interpolated with the uniform distribution over predictable words.
UninitializedBuffer<double> unigrams(UninitializedBuffer<std::uint32_t>& counts, std::uint32_t begin,
                                     std::uint32_t unknown, const DiscountRow& D) {
    const std::size_t V = counts.size();
    const ContextMass mass = mass_of<false>(counts.data(), {}, 0, V, D);
    const double uniform = 1.0 / static_cast<double>(V - 1 - (unknown < V));
    UninitializedBuffer<double> p(V);
    for (std::size_t w = 0; w < V; ++w) {
        const bool is_predictable = w != begin && w != unknown;
        p[w] = discounted_share(counts[w], D, mass.total) + (is_predictable ? mass.gamma * uniform : 0.0);
        put(&counts[w], logarithm(p[w]));
    }
    return p;
}

// Inputs and outputs of one order.
struct Extension {
    const UninitializedBuffer<std::uint32_t>&first, &suffix;
    const UninitializedBuffer<double>& shorter;  // p of the order below
    const DiscountRow& D;
    const KeptRows& kept_rows;
    UninitializedBuffer<std::uint32_t>& counts;    // becomes log p
    UninitializedBuffer<std::uint32_t>& backoffs;  // becomes log γ, by context
    UninitializedBuffer<double>& p;                // empty at the highest order
};

// Contexts [from, to). Pruned rows receive γ(h) p(w | h′), which nothing reads.
template <bool is_cut>
void extend(const Extension& on, std::size_t from, std::size_t to) {
    const std::uint32_t *const counts = on.counts.data(), *const suffix = on.suffix.data();
    const std::size_t stop = on.first[to];
    const DiscountRow& D = on.D;
    ProbabilityRows rows(on.first[from], on.counts.data(), on.p.size() ? on.p.data() : nullptr);
    // Most contexts are followed by a single word that occurs once.
    const double share_alone = discounted_share(1u, D, 1.0), log_alone = logarithm(D[1]);
    for (std::size_t h = from; h < to; ++h) {
        const std::size_t begin = on.first[h], end = on.first[h + 1];
        if (!is_cut && end - begin == 1 && counts[begin] == 1) {
            if (begin + kAhead < stop) prefetch(&on.shorter[suffix[begin + kAhead]]);
            put(&on.backoffs[h], log_alone);
            rows.push(share_alone + D[1] * on.shorter[suffix[begin]]);
            continue;
        }
        // All counts of a context are read before log p overwrites the first of them.
        const ContextMass mass = mass_of<is_cut>(counts, on.kept_rows, begin, end, D);
        put(&on.backoffs[h], logarithm(mass.gamma));
        for (std::size_t i = begin; i < end; ++i) {
            if (i + kAhead < stop) prefetch(&on.shorter[suffix[i + kAhead]]);
            const double share =
                !is_cut || on.kept_rows[i] ? discounted_share(counts[i], D, mass.total) : 0.0;
            rows.push(share + mass.gamma * on.shorter[suffix[i]]);
        }
    }
    rows.flush();
}

void extend_all(const Extension& extension, std::size_t threads) {
    const std::vector<std::size_t> bounds = balanced_ranges(extension.first, threads);
    parallel_for(threads, [&](std::size_t t) {
        if (extension.kept_rows.size() == 0)
            extend<false>(extension, bounds[t], bounds[t + 1]);
        else
            extend<true>(extension, bounds[t], bounds[t + 1]);
    });
}

}  // namespace

KneserNey estimate_kneser_ney(Counts counts, std::size_t threads, std::uint32_t unknown,
                              std::vector<std::uint32_t> cut_offs) {
    threads = std::max<std::size_t>(threads, 1);
    cut_offs = check_cut_offs(std::move(cut_offs), counts.order());
    KneserNey model;
    std::vector<KeptRows> kept_rows;
    UninitializedBuffer<double> shorter;
    UninitializedBuffer<std::uint32_t>
        backoffs;  // of the order below, as contexts; the memory of that order's suffixes
    // An order is complete when its back-off weights are known, which the next order computes; only then
    // can pruned rows be removed.
    const auto trim = [&](std::size_t k) {
        if (cut_offs[k] > 0)
            model.levels[k] = keep_rows(std::move(model.levels[k]), kept_rows[k - 1], kept_rows[k], threads);
    };
    for (std::size_t k = 0; k < counts.order(); ++k) {
        Level& level = counts.levels[k];
        const bool is_top = k + 1 == counts.order();
        kept_rows.push_back(rows_above_cut_off(level.count, cut_offs[k], threads));
        UninitializedBuffer<std::uint32_t> adjusted = std::move(is_top ? level.count : level.continuation);
        level.count = {};
        model.discounts.push_back(modified_discounts(counts_of_counts(adjusted, threads)));
        const DiscountRow& D = model.discounts.back().of;
        if (k == 0) {
            shorter = unigrams(adjusted, counts.begin, unknown, D);
            level.suffix = UninitializedBuffer<std::uint32_t>(is_top ? 0 : level.size());
        } else {
            UninitializedBuffer<double> p(is_top ? 0 : level.size(), Access::scattered);
            extend_all({level.first, level.suffix, shorter, D, kept_rows[k], adjusted, backoffs, p}, threads);
            model.levels.back().log_backoff = std::move(backoffs).reinterpret_as<float>();
            trim(k - 1);
            shorter = std::move(p);
        }
        backoffs = std::move(level.suffix);
        model.levels.push_back(
            {std::move(level.word), std::move(level.first), std::move(adjusted).reinterpret_as<float>(), {}});
    }
    if (counts.order() > 0) trim(counts.order() - 1);
    return model;
}

}  // namespace chainrule
