#include "ngram/query/normalization.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "base/random.hpp"

namespace chainrule {

namespace {

class Sums {
  public:
    explicit Sums(const Model& model)
        : model_(model), rows_(model.rows()), log_probs_(model.metadata().vocabulary) {}

    void add(const std::vector<std::int32_t>& context) {
        model_.next(model_.after(context), log_probs_.data());
        double sum = 0;
        for (const double log_prob : log_probs_) sum += std::exp(log_prob);
        const double deviation = std::abs(sum - 1);
        largest_ =
            std::max(largest_, std::isnan(deviation) ? std::numeric_limits<double>::infinity() : deviation);
    }

    // The words of a row of order n.
    std::vector<std::int32_t> words(std::size_t n, std::uint64_t row) const {
        std::vector<std::int32_t> words(n);
        for (; n > 0; --n) {
            std::uint32_t word = 0;
            rows_->read(n, row, 1, &word, nullptr, nullptr, nullptr);
            words[n - 1] = static_cast<std::int32_t>(word);
            if (n > 1) row = parent(n - 1, row);
        }
        return words;
    }

    // The `count` rows of order n with the largest back-off weights.
    std::vector<std::uint64_t> largest_weights(std::size_t n, std::uint64_t count) const {
        constexpr std::uint64_t kBlock = 4096;
        using Weighted = std::pair<float, std::uint64_t>;  // weight and row
        std::vector<Weighted> heap;                        // the smallest weight first
        std::vector<float> weights(kBlock);
        const std::uint64_t size = rows_->size(n);
        for (std::uint64_t from = 0; from < size; from += kBlock) {
            const std::uint64_t rows = std::min(kBlock, size - from);
            rows_->read(n, from, rows, nullptr, nullptr, weights.data(), nullptr);
            for (std::uint64_t i = 0; i < rows; ++i) {
                if (heap.size() == count && !(weights[i] > heap.front().first)) continue;
                heap.emplace_back(weights[i], from + i);
                std::push_heap(heap.begin(), heap.end(), std::greater<>());
                if (heap.size() <= count) continue;
                std::pop_heap(heap.begin(), heap.end(), std::greater<>());
                heap.pop_back();
            }
        }
        std::vector<std::uint64_t> result;
        for (const Weighted& weighted : heap) result.push_back(weighted.second);
        return result;
    }

    double largest() const { return largest_; }

  private:
    // The context (row of order n) of this row of order n + 1: the last one that begins at or before it
    // and has extensions.
    std::uint64_t parent(std::size_t n, std::uint64_t row) const {
        std::uint64_t from = 0, size = rows_->size(n);
        while (size > 1) {
            const std::uint64_t half = size / 2;
            std::uint32_t edges[2];
            rows_->read(n, from + half, 1, nullptr, nullptr, nullptr, edges);
            from = edges[0] <= row ? from + half : from;
            size = edges[0] <= row ? size - half : half;
        }
        return from;
    }

    const Model& model_;
    std::unique_ptr<Rows> rows_;
    std::vector<double> log_probs_;
    double largest_ = 0;
};

}  // namespace

double largest_deviation(const Model& model, std::size_t contexts) {
    Sums sums(model);
    sums.add({});
    const std::size_t longest = model.order() - 1;
    for (std::size_t n = 1; n <= longest; ++n) {
        const std::uint64_t size = model.file().metadata().sizes[n - 1];
        const std::uint64_t sampled = std::min<std::uint64_t>(size, contexts / longest + 1);
        for (std::uint64_t i = 0; i < sampled; ++i) sums.add(sums.words(n, i * size / sampled));
        for (const std::uint64_t row : sums.largest_weights(n, sampled)) sums.add(sums.words(n, row));
    }
    Random random(1);
    std::vector<std::int32_t> words(longest);
    for (std::size_t i = 0; longest > 0 && i < contexts; ++i) {
        for (std::int32_t& word : words)
            word = static_cast<std::int32_t>(random.below(model.metadata().vocabulary));
        sums.add(words);
    }
    return sums.largest();
}

}  // namespace chainrule
