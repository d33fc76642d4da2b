// The state of an n-gram model and one query step: log p(w | h) and the state after w, for any layout.
//
// For each m below the order, a state holds the context of the last m words if it is stored: its extensions
// and its back-off weight. The n-gram (context of m words, w) scores w and becomes the context of m + 1
// words, so one lookup serves both. The longest stored n-gram determines the probability, times the back-off
// weights of the longer contexts: log p(w | h) = log p(w | h_k) + Σ_{m > k} log weight(h_m).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/error.hpp"
#include "ngram/format/layout.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

inline constexpr std::size_t kMaxQueryOrder = 32;  // number of bits of State::stored

struct State {
    std::uint32_t stored = 0;  // bit m − 1: the context of m words is stored
    // Maximum context length: the words read since <s>, below the order. 0 if it makes no difference.
    std::uint32_t reach = 0;
    std::array<Children, kMaxQueryOrder - 1> children;  // by m − 1; set where the bit of `stored` is set
    std::array<float, kMaxQueryOrder - 1> log_backoff;

    // Equality of all future scores: two contexts never share their extensions.
    bool operator==(const State& other) const {
        if (stored != other.stored || reach != other.reach) return false;
        for (std::uint32_t bits = stored; bits; bits &= bits - 1) {
            const auto i = static_cast<std::size_t>(std::countr_zero(bits));
            const bool is_same = children[i].from == other.children[i].from &&
                                 children[i].to == other.children[i].to &&
                                 log_backoff[i] == other.log_backoff[i];
            if (!is_same) return false;
        }
        return true;
    }
    std::uint64_t hash() const {
        std::uint64_t h = 0x9E3779B97F4A7C15ULL ^ (std::uint64_t{stored} << 32 | reach);
        for (std::uint32_t bits = stored; bits; bits &= bits - 1) {
            const auto i = static_cast<std::size_t>(std::countr_zero(bits));
            h ^= std::uint64_t{children[i].from} << 32 | children[i].to;
            h *= 0xBF58476D1CE4E5B9ULL;
            h ^= h >> 31;
        }
        return h;
    }
    // Copies only the entries in use.
    void copy_from(const State& other) {
        stored = other.stored;
        reach = other.reach;
        const auto set = static_cast<std::size_t>(std::bit_width(stored));
        for (std::size_t i = 0; i < set; ++i) {
            children[i] = other.children[i];
            log_backoff[i] = other.log_backoff[i];
        }
    }
};

struct StepResult {
    double log_prob;       // natural logarithm
    std::uint32_t length;  // length of the matched n-gram
};

inline constexpr std::uint32_t kNoWord = 0xFFFFFFFF;  // an unknown word of a model without <unk>

template <NgramLayout Layout>
class Query {
  public:
    Query(const Layout& layout, const ModelMetadata& metadata, std::size_t order)
        : layout_(layout), metadata_(metadata), order_(order), log_missing_(metadata.log_missing) {
        if (order > kMaxQueryOrder) {
            throw ModelFileError("the model has order " + std::to_string(order) +
                                 ", but the highest supported order is " + std::to_string(kMaxQueryOrder));
        }
    }

    std::size_t order() const { return order_; }
    const ModelMetadata& metadata() const { return metadata_; }
    const Layout& layout() const { return layout_; }

    // The word id as context of the next word: line models restart after </s>.
    std::uint32_t read_as(std::uint32_t word) const {
        return word == metadata_.end && !metadata_.is_stream ? metadata_.begin : word;
    }

    // Prefetches for a later `step`.
    void prefetch(const State& before, std::uint32_t word) const {
        if (word == kNoWord) return;
        for (std::uint32_t bits = before.stored; bits; bits &= bits - 1) {
            const auto i = static_cast<std::size_t>(std::countr_zero(bits));
            if (before.children[i].size()) layout_.prefetch(i + 2, before.children[i], word);
        }
    }
    // Second stage, once the first prefetch has completed.
    void prefetch_rows(const State& before, std::uint32_t word) const {
        if (word == kNoWord) return;
        for (std::uint32_t bits = before.stored; bits; bits &= bits - 1) {
            const auto i = static_cast<std::size_t>(std::countr_zero(bits));
            if (before.children[i].size()) layout_.prefetch_row(i + 2, before.children[i], word);
        }
    }

    // Returns log p(word | before) and sets the state after it; `after` must not alias `before`.
    //
    // In stream models a text starts like a line: <s> is read as a </s> without left context. N-grams
    // that begin with <s> itself occur once, at the start of the training text, unless `starts_at_begin`.
    StepResult step(const State& before, std::uint32_t word, State& after) const {
        const StepResult answer = look_up(before, word, after);
        if (metadata_.is_stream && !metadata_.starts_at_begin && word == metadata_.begin)
            look_up(State(), metadata_.end, after);
        return answer;
    }

    // Log back-off weight of the context of m words.
    double weight(const State& state, std::size_t m) const {
        if (state.stored >> (m - 1) & 1) return state.log_backoff[m - 1];
        return m <= state.reach ? log_missing_ : 0.0;
    }

    // State after as many <s> as the longest context has: the beginning of a line or stream.
    State begin() const {
        State one, other;
        for (std::size_t i = 1; i < order_; ++i) {
            step(one, metadata_.begin, other);
            one.copy_from(other);
        }
        return one;
    }

    // State after these words only.
    template <class Word>
    State after(const Word* words, std::size_t size) const {
        State one, other;
        for (std::size_t i = 0; i < size; ++i) {
            step(one, read_as(static_cast<std::uint32_t>(words[i])), other);
            one.copy_from(other);
        }
        return one;
    }

  private:
    // As `step`, treating <s> as an ordinary word.
    StepResult look_up(const State& before, std::uint32_t word, State& after) const {
        after.stored = 0;
        after.reach = log_missing_ == 0 ? 0 : reach_after(before, word);
        if (word == kNoWord) return {-std::numeric_limits<double>::infinity(), 0};
        const Lookup unigram = layout_.first(word);
        if (order_ > 1) keep(after, 1, unigram);
        StepResult answer{unigram.log_prob, 1};
        if (log_missing_ == 0) {
            for (std::uint32_t bits = before.stored; bits; bits &= bits - 1) {
                extend(before, static_cast<std::size_t>(std::countr_zero(bits)) + 1, word, answer, after);
            }
            return answer;
        }
        for (std::size_t m = 1; m < order_; ++m) {
            if (before.stored >> (m - 1) & 1) {
                extend(before, m, word, answer, after);
            } else if (m <= before.reach) {
                answer.log_prob += log_missing_;
            }
        }
        return answer;
    }
    std::uint32_t reach_after(const State& before, std::uint32_t word) const {
        const std::uint32_t reach = word == metadata_.begin ? 1 : before.reach + 1;
        return std::min(reach, static_cast<std::uint32_t>(order_ - 1));
    }
    // A context without extensions and with weight 1 need not be kept if missing contexts have weight 1
    // as well.
    void keep(State& after, std::size_t m, const Lookup& lookup) const {
        if (!lookup.children.size() && lookup.log_backoff == 0 && log_missing_ == 0) return;
        after.stored |= 1u << (m - 1);
        after.children[m - 1] = lookup.children;
        after.log_backoff[m - 1] = lookup.log_backoff;
    }
    void extend(const State& before, std::size_t m, std::uint32_t word, StepResult& answer,
                State& after) const {
        const Children in = before.children[m - 1];
        if (in.size()) {
            const Lookup lookup = layout_.find(m + 1, in, word);
            if (lookup.is_present) {
                answer = {lookup.log_prob, static_cast<std::uint32_t>(m + 1)};
                if (m + 1 < order_) keep(after, m + 1, lookup);
                return;
            }
        }
        answer.log_prob += before.log_backoff[m - 1];
    }

    const Layout& layout_;
    ModelMetadata metadata_;
    std::size_t order_;
    double log_missing_;
};

}  // namespace chainrule
