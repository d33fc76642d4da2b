#include "ngram_kneser_ney.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "logarithm.hpp"
#include "parallel.hpp"
#include "prefetch.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kAhead = 48;  // rows between the call for a shorter n-gram's probability and its use

using Row = std::array<double, 4>;  // by count: 0, 1, 2, 3 and more

std::size_t kind(std::uint32_t count) { return std::min(count, 3u); }

// c(h) and γ(h) of the context whose n-grams have these counts.
struct Mass {
    double total, gamma;
};

Mass mass_of(const std::uint32_t* counts, std::size_t size, const Row& D) {
    std::array<std::uint64_t, 4> N{};
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < size; ++i) {
        ++N[kind(counts[i])];
        total += counts[i];
    }
    if (total == 0) return {1.0, 1.0};
    const double taken = D[1] * static_cast<double>(N[1]) + D[2] * static_cast<double>(N[2]) +
                         D[3] * static_cast<double>(N[3]);
    return {static_cast<double>(total), taken / static_cast<double>(total)};
}

double share(std::uint32_t count, const Row& D, double total) {
    return std::max(static_cast<double>(count) - D[kind(count)], 0.0) / total;
}

void put(std::uint32_t* at, double log) {
    const auto value = static_cast<float>(log);
    std::memcpy(at, &value, sizeof value);
}

// Probabilities of one row after the other, from `row` on: they are gathered, since logarithms are faster by
// the hundred. The logarithms go into `logs`, the probabilities into `kept` unless that is null.
class Rows {
  public:
    Rows(std::size_t row, std::uint32_t* logs, double* kept) : row_(row), logs_(logs), kept_(kept) {}

    void push(double p) {
        gathered_[size_++] = p;
        if (size_ == kGathered) flush();
    }
    void flush() {
        if (kept_) std::copy_n(gathered_.begin(), size_, kept_ + row_);
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
    double* kept_;
    std::array<double, kGathered> gathered_{};
};

// Order 1, over the uniform distribution of what can be predicted.
Array<double> unigrams(Array<std::uint32_t>& counts, std::uint32_t begin, std::uint32_t unknown,
                       const Row& D) {
    const std::size_t V = counts.size();
    const Mass mass = mass_of(counts.data(), V, D);
    const double uniform = 1.0 / static_cast<double>(V - 1 - (unknown < V));
    Array<double> p(V);
    for (std::size_t w = 0; w < V; ++w) {
        const bool is_predictable = w != begin && w != unknown;
        p[w] = share(counts[w], D, mass.total) + (is_predictable ? mass.gamma * uniform : 0.0);
        put(&counts[w], logarithm(p[w]));
    }
    return p;
}

// What one order up is made from, and made into.
struct Extension {
    const Array<std::uint32_t>&first, &suffix;
    const Array<double>& shorter;  // p of the order below
    const Row& D;
    Array<std::uint32_t>& counts;    // becomes log p
    Array<std::uint32_t>& backoffs;  // becomes log γ, by context
    Array<double>& p;                // empty where no order follows
};

// The contexts [from, to).
void extend(const Extension& on, std::size_t from, std::size_t to) {
    const std::uint32_t *const counts = on.counts.data(), *const suffix = on.suffix.data();
    const std::size_t stop = on.first[to];
    const Row& D = on.D;
    Rows rows(on.first[from], on.counts.data(), on.p.size() ? on.p.data() : nullptr);
    // By far the most contexts have one word behind them, and that once.
    const double share_alone = share(1, D, 1.0), log_alone = logarithm(D[1]);
    for (std::size_t h = from; h < to; ++h) {
        const std::size_t begin = on.first[h], end = on.first[h + 1];
        if (end - begin == 1 && counts[begin] == 1) {
            if (begin + kAhead < stop) prefetch(&on.shorter[suffix[begin + kAhead]]);
            put(&on.backoffs[h], log_alone);
            rows.push(share_alone + D[1] * on.shorter[suffix[begin]]);
            continue;
        }
        // The counts of a context are all read here before log p takes the place of the first.
        const Mass mass = mass_of(counts + begin, end - begin, D);
        put(&on.backoffs[h], logarithm(mass.gamma));
        for (std::size_t i = begin; i < end; ++i) {
            if (i + kAhead < stop) prefetch(&on.shorter[suffix[i + kAhead]]);
            rows.push(share(counts[i], D, mass.total) + mass.gamma * on.shorter[suffix[i]]);
        }
    }
    rows.flush();
}

// Contexts in ranges with about as many n-grams each.
std::vector<std::size_t> share_out(const Array<std::uint32_t>& first, std::size_t threads) {
    std::vector<std::size_t> bounds{0};
    const std::size_t contexts = first.size() - 1;
    for (std::size_t t = 1; t < threads; ++t) {
        const std::size_t wanted = part_begin(first[contexts], t, threads);
        const std::uint32_t* at =
            std::lower_bound(first.begin() + bounds.back(), first.begin() + contexts, wanted);
        bounds.push_back(static_cast<std::size_t>(at - first.begin()));
    }
    bounds.push_back(contexts);
    return bounds;
}

}  // namespace

KneserNey estimate_kneser_ney(Counts counts, std::size_t threads, std::uint32_t unknown) {
    threads = std::max<std::size_t>(threads, 1);
    KneserNey model;
    Array<double> shorter;
    Array<std::uint32_t> backoffs;  // of the order below, as contexts; the memory of that order's suffixes
    for (std::size_t k = 0; k < counts.order(); ++k) {
        Level& level = counts.levels[k];
        const bool is_top = k + 1 == counts.order();
        Array<std::uint32_t> adjusted = std::move(is_top ? level.count : level.continuation);
        level.count = {};
        model.discounts.push_back(modified_discounts(counts_of_counts(adjusted, threads)));
        const Row& D = model.discounts.back().of;
        if (k == 0) {
            shorter = unigrams(adjusted, counts.begin, unknown, D);
            level.suffix = Array<std::uint32_t>(is_top ? 0 : level.size());
        } else {
            Array<double> p(is_top ? 0 : level.size(), Access::scattered);
            const Extension extension{level.first, level.suffix, shorter, D, adjusted, backoffs, p};
            const std::vector<std::size_t> bounds = share_out(level.first, threads);
            in_parallel(threads, [&](std::size_t t) { extend(extension, bounds[t], bounds[t + 1]); });
            model.levels.back().log_backoff = std::move(backoffs).become<float>();
            shorter = std::move(p);
        }
        backoffs = std::move(level.suffix);
        model.levels.push_back(
            {std::move(level.word), std::move(level.first), std::move(adjusted).become<float>(), {}});
    }
    return model;
}

}  // namespace chainrule
