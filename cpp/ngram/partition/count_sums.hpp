// Counts added up over the partitions: contexts of each word (the adjusted counts of unigrams), counts of
// counts, and the n-grams whose context is split. Then what every partition needs to estimate its n-grams:
// discounts, unigram probabilities and the probabilities of the n-grams of split contexts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ngram/build/discounts.hpp"
#include "ngram/build/kneser_ney.hpp"
#include "ngram/partition/partition_plan.hpp"

namespace chainrule {

// Sums of some partitions for some last words. Integers only: the order of additions does not matter.
class CountSums {
  public:
    explicit CountSums(std::uint32_t order) : counts_(order) {}

    // An n-gram of a split context.
    struct Row {
        std::uint32_t word, count, adjusted;
    };
    void add_unigram(std::uint32_t word, std::uint32_t adjusted) { unigrams_.push_back({word, adjusted}); }
    // An n-gram of order n whose counts are complete.
    void add_count(std::uint32_t n, std::uint32_t adjusted) { counts_[n - 1][std::min(adjusted, 5U)] += 1; }
    void add(std::uint32_t split, const Row& row);
    void add(std::string_view record);

    // Merges rows of the same word.
    void merge();
    std::string bytes() const;

    struct Unigram {
        std::uint32_t word, adjusted;
    };
    const std::vector<Unigram>& unigrams() const { return unigrams_; }
    const std::vector<std::vector<Row>>& rows() const { return rows_; }  // by split context
    const std::array<std::uint64_t, 6>& counts(std::uint32_t n) const { return counts_[n - 1]; }

  private:
    std::vector<std::array<std::uint64_t, 6>>
        counts_;  // [order − 1], n-grams by adjusted count, 5 or more last
    std::vector<Unigram> unigrams_;
    std::vector<std::vector<Row>> rows_;
};

struct EstimateOptions {
    std::uint32_t unknown = kEveryWord;   // word excluded from prediction, if any
    std::vector<std::uint32_t> cut_offs;  // one per order, or empty
};

// Estimates that all partitions share.
class GlobalEstimates {
  public:
    // From the merged sums of all partitions.
    GlobalEstimates(const PartitionPlan& plan, CountSums sums, const EstimateOptions& options);
    // Reads in place the bytes that `bytes` returned; they must be aligned and outlive this object.
    explicit GlobalEstimates(std::string_view bytes);
    std::string bytes() const;

    const std::vector<Discounts>& discounts() const { return discounts_; }  // empty if read from bytes
    const DiscountRow& discount(std::uint32_t n) const { return discount_rows_[n - 1]; }
    std::uint32_t cut_off(std::uint32_t n) const { return cut_offs_[n - 1]; }
    std::span<const double> unigrams() const { return unigrams_.values(); }         // p by word
    std::span<const float> log_unigrams() const { return log_unigrams_.values(); }  // log p by word

    // N-grams of a split context above the cut-off, by last word.
    struct SplitContext {
        float log_backoff = 0;
        std::span<const std::uint32_t> words;
        std::span<const double> p;
        std::span<const float> log_prob;
    };
    const SplitContext& split(std::uint32_t number) const { return splits_[number]; }
    std::size_t splits() const { return splits_.size(); }

  private:
    // Values of this object, or a view of values elsewhere.
    template <class T>
    class Column {
      public:
        std::vector<T> stored;
        std::span<const T> view;
        std::span<const T> values() const { return stored.empty() ? view : std::span<const T>(stored); }
    };
    void estimate_unigrams(const PartitionPlan& plan, const std::vector<std::uint32_t>& adjusted,
                           std::uint32_t unknown);
    void estimate_split(const PartitionPlan& plan, std::uint32_t split,
                        const std::vector<CountSums::Row>& rows);
    void set_splits(std::span<const float> backoffs, std::span<const std::uint64_t> begins);

    std::vector<Discounts> discounts_;
    std::vector<DiscountRow> discount_rows_;
    std::vector<std::uint32_t> cut_offs_;
    Column<double> unigrams_, p_;
    Column<float> log_unigrams_, log_prob_, backoffs_;
    Column<std::uint32_t> words_;
    Column<std::uint64_t> begins_;  // of each split context in the columns of n-grams, and the end
    std::vector<SplitContext> splits_;
};

}  // namespace chainrule
