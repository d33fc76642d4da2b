// Next-word distribution: log p of all words, the k best, sampling. Only words stored after the contexts of
// the state are visited; all others have their unigram probability times one weight.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "ngram/query/state.hpp"

namespace chainrule {

struct Candidate {
    std::uint32_t word;
    double log_prob;
};

// Unigrams by word, by rank, and as cumulative sums.
struct Unigrams {
    std::vector<float> log_prob;         // by word
    std::vector<std::uint32_t> falling;  // words by descending probability, ties by number
    std::vector<double> up_to;           // cumulative probability

    template <NgramLayout Layout>
    explicit Unigrams(const Layout& layout, std::uint32_t V) : log_prob(V), falling(V), up_to(V) {
        double sum = 0;
        for (std::uint32_t w = 0; w < V; ++w) {
            log_prob[w] = layout.first(w).log_prob;
            up_to[w] = sum += std::exp(static_cast<double>(log_prob[w]));
        }
        std::iota(falling.begin(), falling.end(), 0u);
        std::stable_sort(falling.begin(), falling.end(),
                         [&](std::uint32_t a, std::uint32_t b) { return log_prob[a] > log_prob[b]; });
    }
};

template <NgramLayout Layout>
class NextWord {
  public:
    NextWord(const Query<Layout>& query, const Unigrams& unigrams) : query_(query), unigrams_(unigrams) {}

    // log p(w | state) of every word w.
    void all(const State& state, double* into) const {
        const std::size_t V = unigrams_.log_prob.size();
        std::copy(unigrams_.log_prob.begin(), unigrams_.log_prob.end(), into);
        for (std::size_t m = 1; m < query_.order(); ++m) {
            const double weight = query_.weight(state, m);
            if (weight != 0)
                for (std::size_t w = 0; w < V; ++w) into[w] += weight;
            each_child(state, m, [&](std::uint32_t word, double log_prob) { into[word] = log_prob; });
        }
    }

    // The k most probable words, the best first, the lowest number among equals.
    std::vector<Candidate> top(const State& state, std::size_t k) const {
        std::vector<Candidate> best = stored(state);
        const std::size_t own = best.size();
        for (std::size_t i = 0, used = 0; i < unigrams_.falling.size() && used < k; ++i) {
            const std::uint32_t word = unigrams_.falling[i];
            if (holds(best, own, word)) continue;
            best.push_back({word, passed(state, 0, unigrams_.log_prob[word])});
            ++used;
        }
        const auto is_better = [](const Candidate& a, const Candidate& b) {
            return a.log_prob != b.log_prob ? a.log_prob > b.log_prob : a.word < b.word;
        };
        const std::size_t target = std::min(k, best.size());
        std::partial_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(target), best.end(),
                          is_better);
        best.resize(target);
        return best;
    }

    // Samples by inverse transform: the word at `uniform` in [0, 1) when words are laid out with their
    // probabilities as widths, first those stored after a context, then the others, both by id. Scores
    // that do not sum to one are normalised.
    std::uint32_t draw(const State& state, double uniform) const {
        const std::vector<Candidate> own = stored(state);
        std::vector<double> hidden(
            own.size());  // cumulative unigram probability of `own`, which is overridden
        double mass = 0, hidden_mass = 0;
        for (std::size_t i = 0; i < own.size(); ++i) {
            mass += std::exp(own[i].log_prob);
            hidden[i] = hidden_mass += std::exp(static_cast<double>(unigrams_.log_prob[own[i].word]));
        }
        const double weight = std::exp(passed(state, 0, 0.0));
        const double others = std::max(unigrams_.up_to.back() - hidden_mass, 0.0);
        const double at = uniform * (mass + weight * others);
        if (at < mass) {
            double sum = 0;
            for (const Candidate& candidate : own)
                if (at < (sum += std::exp(candidate.log_prob))) return candidate.word;
        }
        return draw_other(own, hidden, weight > 0 ? (at - mass) / weight : 0.0);
    }

  private:
    // The words stored after a context of the state, by id, with log p(w | state).
    std::vector<Candidate> stored(const State& state) const {
        std::vector<Candidate> candidates;
        for (std::size_t m = query_.order() - 1; m > 0; --m) {  // the longest context first
            each_child(state, m, [&](std::uint32_t word, double log_prob) {
                candidates.push_back({word, passed(state, m, log_prob)});
            });
        }
        std::stable_sort(candidates.begin(), candidates.end(),
                         [](const Candidate& a, const Candidate& b) { return a.word < b.word; });
        const auto is_same = [](const Candidate& a, const Candidate& b) { return a.word == b.word; };
        candidates.erase(std::unique(candidates.begin(), candidates.end(), is_same), candidates.end());
        return candidates;
    }

    template <class Use>
    void each_child(const State& state, std::size_t m, Use use) const {
        if (!(state.stored >> (m - 1) & 1)) return;
        const Children in = state.children[m - 1];
        for (std::uint32_t row = in.from; row < in.to; ++row) {
            std::uint32_t word = 0;
            const Lookup lookup = query_.layout().at(m + 1, row, word);
            if (word < unigrams_.log_prob.size()) use(word, static_cast<double>(lookup.log_prob));
        }
    }

    // log p from a context of m words, times the weights of the longer contexts.
    double passed(const State& state, std::size_t m, double log_prob) const {
        for (++m; m < query_.order(); ++m) log_prob += query_.weight(state, m);
        return log_prob;
    }

    static bool holds(const std::vector<Candidate>& sorted, std::size_t size, std::uint32_t word) {
        const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(size);
        const auto at = std::lower_bound(sorted.begin(), end, word,
                                         [](const Candidate& a, std::uint32_t w) { return a.word < w; });
        return at != end && at->word == word;
    }

    // The word at `at` among those not stored after a context, with unigram widths.
    std::uint32_t draw_other(const std::vector<Candidate>& own, const std::vector<double>& hidden,
                             double at) const {
        const auto V = static_cast<std::uint32_t>(unigrams_.up_to.size());
        const auto sum_to = [&](std::uint32_t word) {  // cumulative mass of the other words up to this one
            const auto past = std::upper_bound(
                own.begin(), own.end(), word, [](std::uint32_t w, const Candidate& a) { return w < a.word; });
            return unigrams_.up_to[word] -
                   (past == own.begin() ? 0.0 : hidden[static_cast<std::size_t>(past - own.begin()) - 1]);
        };
        std::uint32_t low = 0, high = V - 1;
        while (low < high) {
            const std::uint32_t middle = low + (high - low) / 2;
            if (at < sum_to(middle)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        // Rounding may select a neighbour of zero width.
        const auto has_width = [&](std::uint32_t word) {
            return std::isfinite(unigrams_.log_prob[word]) && !holds(own, own.size(), word);
        };
        for (std::uint32_t word = low; word < V; ++word)
            if (has_width(word)) return word;
        for (std::uint32_t word = low; word-- > 0;)
            if (has_width(word)) return word;
        for (const Candidate& candidate : own)
            if (std::isfinite(candidate.log_prob)) return candidate.word;
        throw Error("no word can follow here: all have probability 0");
    }

    const Query<Layout>& query_;
    const Unigrams& unigrams_;
};

}  // namespace chainrule
