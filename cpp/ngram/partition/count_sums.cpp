#include "ngram/partition/count_sums.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/byte_stream.hpp"
#include "base/error.hpp"
#include "base/logarithm.hpp"
#include "ngram/partition/windows.hpp"

namespace chainrule {

void CountSums::add(std::uint32_t split, const Row& row) {
    if (rows_.size() <= split) rows_.resize(split + 1);
    rows_[split].push_back(row);
}

void CountSums::add(std::string_view record) {
    ByteReader in(record);
    if (in.varint() != counts_.size()) ByteReader::fail();
    for (auto& histogram : counts_)
        for (std::uint64_t& count : histogram) count += in.varint();
    std::uint32_t word = 0;
    for (std::uint64_t left = in.varint(); left > 0; --left) {
        word += in.varint32();
        unigrams_.push_back({word, in.varint32()});
    }
    const std::uint64_t splits = in.varint();
    for (std::uint64_t split = 0; split < splits; ++split) {
        word = 0;
        for (std::uint64_t left = in.varint(); left > 0; --left) {
            word += in.varint32();
            const std::uint32_t count = in.varint32();
            add(static_cast<std::uint32_t>(split), {word, count, in.varint32()});
        }
    }
}

void CountSums::merge() {
    std::ranges::stable_sort(unigrams_, {}, &Unigram::word);
    std::size_t size = 0;
    for (const Unigram& unigram : unigrams_) {
        if (size > 0 && unigrams_[size - 1].word == unigram.word)
            unigrams_[size - 1].adjusted = add_saturated(unigrams_[size - 1].adjusted, unigram.adjusted);
        else
            unigrams_[size++] = unigram;
    }
    unigrams_.resize(size);
    for (std::vector<Row>& rows : rows_) {
        std::ranges::stable_sort(rows, {}, &Row::word);
        size = 0;
        for (const Row& row : rows) {
            if (size > 0 && rows[size - 1].word == row.word) {
                rows[size - 1].count = add_saturated(rows[size - 1].count, row.count);
                rows[size - 1].adjusted = add_saturated(rows[size - 1].adjusted, row.adjusted);
            } else {
                rows[size++] = row;
            }
        }
        rows.resize(size);
    }
}

std::string CountSums::bytes() const {
    ByteWriter out;
    out.varint(counts_.size());
    for (const auto& histogram : counts_)
        for (const std::uint64_t count : histogram) out.varint(count);
    // Words ascend within a record; a partition adds them in this order.
    const auto put_words = [&out](const auto& rows, const auto& put_rest) {
        std::vector<typename std::remove_cvref_t<decltype(rows)>::value_type> sorted(rows.begin(),
                                                                                     rows.end());
        std::ranges::stable_sort(sorted, {}, [](const auto& row) { return row.word; });
        out.varint(sorted.size());
        std::uint32_t word = 0;
        for (const auto& row : sorted) {
            out.varint(row.word - std::exchange(word, row.word));
            put_rest(row);
        }
    };
    put_words(unigrams_, [&](const Unigram& unigram) { out.varint(unigram.adjusted); });
    out.varint(rows_.size());
    for (const std::vector<Row>& rows : rows_)
        put_words(rows, [&](const Row& row) {
            out.varint(row.count);
            out.varint(row.adjusted);
        });
    return out.take();
}

GlobalEstimates::GlobalEstimates(const PartitionPlan& plan, CountSums sums, const EstimateOptions& options) {
    const WindowShape& shape = plan.shape();
    const std::uint32_t N = shape.order;
    cut_offs_ = check_cut_offs(options.cut_offs, N);
    sums.merge();
    std::vector<std::vector<CountSums::Row>> rows = sums.rows();
    rows.resize(plan.split_contexts());
    std::vector<std::uint32_t> unigrams(shape.vocabulary);
    for (const CountSums::Unigram& unigram : sums.unigrams()) {
        if (unigram.word >= shape.vocabulary) ByteReader::fail();
        unigrams[unigram.word] = unigram.adjusted;
    }
    // The farthest word of a split context is one of the words to the left of the n-grams of its parent.
    for (std::size_t split = rows.size(); split-- > 0;) {
        const std::uint32_t parent = plan.parent_of(static_cast<std::uint32_t>(split));
        for (const CountSums::Row& row : rows[split]) {
            if (row.word >= shape.vocabulary) ByteReader::fail();
            if (parent == kNotSplit) {
                unigrams[row.word] = add_saturated(unigrams[row.word], 1);
                continue;
            }
            const auto shorter = std::ranges::lower_bound(rows[parent], row.word, {}, &CountSums::Row::word);
            if (shorter == rows[parent].end() || shorter->word != row.word) ByteReader::fail();
            shorter->adjusted = add_saturated(shorter->adjusted, 1);
        }
    }
    unigrams[shape.begin] = 0;  // never predicted
    std::vector<std::array<std::uint64_t, 6>> histograms;
    for (std::uint32_t n = 1; n <= N; ++n) histograms.push_back(sums.counts(n));
    for (const std::uint32_t adjusted : unigrams) ++histograms[0][std::min(adjusted, 5U)];
    for (std::uint32_t split = 0; split < rows.size(); ++split)
        for (const CountSums::Row& row : rows[split])
            ++histograms[plan.context_of(split).size()][std::min(row.adjusted, 5U)];
    for (const auto& histogram : histograms) {
        std::array<std::uint64_t, 5> counts;
        std::copy_n(histogram.begin(), 5, counts.begin());
        discounts_.push_back(modified_discounts(counts));
        discount_rows_.push_back(discounts_.back().of);
    }
    estimate_unigrams(plan, unigrams, options.unknown);
    // A shorter split context precedes a longer one, whose p it gives.
    for (std::uint32_t split = 0; split < rows.size(); ++split) {
        begins_.stored.push_back(words_.stored.size());
        estimate_split(plan, split, rows[split]);
    }
    begins_.stored.push_back(words_.stored.size());
    set_splits(backoffs_.stored, begins_.stored);
}

// Order 1, interpolated with the uniform distribution over predictable words, as in kneser_ney.cpp.
void GlobalEstimates::estimate_unigrams(const PartitionPlan& plan, const std::vector<std::uint32_t>& adjusted,
                                        std::uint32_t unknown) {
    const std::size_t V = adjusted.size();
    const DiscountRow& D = discount(1);
    ContextCounts counts;
    for (const std::uint32_t count : adjusted) counts.keep(count);
    const ContextMass mass = counts.mass(D);
    const double uniform = 1.0 / static_cast<double>(V - 1 - (unknown < V));
    unigrams_.stored.resize(V);
    log_unigrams_.stored.resize(V);
    for (std::size_t w = 0; w < V; ++w) {
        const bool is_predictable = w != plan.shape().begin && w != unknown;
        const double p =
            discounted_share(adjusted[w], D, mass.total) + (is_predictable ? mass.gamma * uniform : 0.0);
        unigrams_.stored[w] = p;
        log_unigrams_.stored[w] = static_cast<float>(logarithm(p));
    }
}

void GlobalEstimates::estimate_split(const PartitionPlan& plan, std::uint32_t split,
                                     const std::vector<CountSums::Row>& rows) {
    const auto n = static_cast<std::uint32_t>(plan.context_of(split).size()) + 1;
    const DiscountRow& D = discount(n);
    const std::uint32_t cut = cut_off(n);
    ContextCounts counts;
    for (const CountSums::Row& row : rows)
        if (row.count > cut)
            counts.keep(row.adjusted);
        else
            counts.add_pruned(row.adjusted);
    const ContextMass mass = counts.mass(D);
    backoffs_.stored.push_back(static_cast<float>(logarithm(mass.gamma)));
    const std::uint32_t parent = plan.parent_of(split);
    std::size_t shorter = parent == kNotSplit ? 0 : begins_.stored[parent];
    for (const CountSums::Row& row : rows) {
        if (row.count <= cut) continue;
        double p_shorter = 0;
        if (parent == kNotSplit) {
            p_shorter = unigrams_.stored[row.word];
        } else {
            while (words_.stored[shorter] != row.word) ++shorter;  // kept, as its extension is
            p_shorter = p_.stored[shorter];
        }
        const double p = discounted_share(row.adjusted, D, mass.total) + mass.gamma * p_shorter;
        words_.stored.push_back(row.word);
        p_.stored.push_back(p);
        log_prob_.stored.push_back(static_cast<float>(logarithm(p)));
    }
}

void GlobalEstimates::set_splits(std::span<const float> backoffs, std::span<const std::uint64_t> begins) {
    for (std::size_t i = 0; i < backoffs.size(); ++i) {
        const std::size_t from = begins[i], size = begins[i + 1] - from;
        splits_.push_back({backoffs[i], words_.values().subspan(from, size), p_.values().subspan(from, size),
                           log_prob_.values().subspan(from, size)});
    }
}

std::string GlobalEstimates::bytes() const {
    ByteWriter out;
    out.array(std::span<const DiscountRow>(discount_rows_));
    out.array(unigrams_.values());
    out.array(p_.values());
    out.array(begins_.values());
    out.array(std::span<const std::uint32_t>(cut_offs_));
    for (const auto& column : {log_unigrams_.values(), log_prob_.values(), backoffs_.values()}) {
        out.align();
        out.array(column);
    }
    out.align();
    out.array(words_.values());
    return out.take();
}

GlobalEstimates::GlobalEstimates(std::string_view bytes) {
    ByteReader in(bytes);
    const auto rows = in.array<DiscountRow>();
    discount_rows_.assign(rows.begin(), rows.end());
    unigrams_.view = in.array<double>();
    p_.view = in.array<double>();
    begins_.view = in.array<std::uint64_t>();
    const auto cut_offs = in.array<std::uint32_t>();
    cut_offs_.assign(cut_offs.begin(), cut_offs.end());
    for (auto* column : {&log_unigrams_, &log_prob_, &backoffs_}) {
        in.align();
        column->view = in.array<float>();
    }
    in.align();
    words_.view = in.array<std::uint32_t>();
    const std::size_t size = words_.view.size();
    if (begins_.view.size() != backoffs_.view.size() + 1 || !std::ranges::is_sorted(begins_.view) ||
        begins_.view.back() != size || p_.view.size() != size || log_prob_.view.size() != size ||
        cut_offs_.size() != discount_rows_.size() || log_unigrams_.view.size() != unigrams_.view.size())
        ByteReader::fail();
    set_splits(backoffs_.view, begins_.view);
}

}  // namespace chainrule
