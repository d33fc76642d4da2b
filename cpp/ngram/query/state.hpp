// What a model remembers of the words read, and one step: log p(w | h) and the state after w, over any
// layout.
//
// A state holds, of each m below the order, the context of the last m words where that is stored: the rows
// that continue it and its weight. The n-gram (context of m words, w) answers for w, and is the context of
// m + 1 words after w; so that one look-up of each serves both. The longest that is stored answers, times the
// weights of the longer contexts:  log p(w | h) = log p(w | h_k) + Σ_{m > k} log weight(h_m).
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

inline constexpr std::size_t kMostOrderAsked = 32;  // the bits of State::found

struct State {
    std::uint32_t found = 0;  // bit m − 1: the context of m words is stored
    // Words a context can have: those read, back to <s>; below the order. 0 where it makes no difference.
    std::uint32_t reach = 0;
    std::array<Children, kMostOrderAsked - 1> children;  // by m − 1; set where found says so
    std::array<float, kMostOrderAsked - 1> log_backoff;

    // Whether both say the same of all that may follow: children are never those of two contexts.
    bool operator==(const State& other) const {
        if (found != other.found || reach != other.reach) return false;
        for (std::uint32_t bits = found; bits; bits &= bits - 1) {
            const auto i = static_cast<std::size_t>(std::countr_zero(bits));
            const bool is_same = children[i].from == other.children[i].from &&
                                 children[i].to == other.children[i].to &&
                                 log_backoff[i] == other.log_backoff[i];
            if (!is_same) return false;
        }
        return true;
    }
    std::uint64_t hash() const {
        std::uint64_t h = 0x9E3779B97F4A7C15ULL ^ (std::uint64_t{found} << 32 | reach);
        for (std::uint32_t bits = found; bits; bits &= bits - 1) {
            const auto i = static_cast<std::size_t>(std::countr_zero(bits));
            h ^= std::uint64_t{children[i].from} << 32 | children[i].to;
            h *= 0xBF58476D1CE4E5B9ULL;
            h ^= h >> 31;
        }
        return h;
    }
    // Only what is set.
    void copy_from(const State& other) {
        found = other.found;
        reach = other.reach;
        const auto set = static_cast<std::size_t>(std::bit_width(found));
        for (std::size_t i = 0; i < set; ++i) {
            children[i] = other.children[i];
            log_backoff[i] = other.log_backoff[i];
        }
    }
};

struct Answer {
    double log_prob;       // natural
    std::uint32_t length;  // words in the n-gram that answered
};

inline constexpr std::uint32_t kNoWord = 0xFFFFFFFF;  // a word that a model without <unk> cannot write

template <class Layout>
class Asking {
  public:
    Asking(const Layout& layout, const ModelFacts& facts, std::size_t order)
        : layout_(layout), facts_(facts), order_(order), log_missing_(facts.log_missing) {
        if (order > kMostOrderAsked) {
            throw Failure("the model has order " + std::to_string(order) + ", and the most is " +
                          std::to_string(kMostOrderAsked));
        }
    }

    std::size_t order() const { return order_; }
    const ModelFacts& facts() const { return facts_; }
    const Layout& layout() const { return layout_; }

    // What `word` reads as before the next one: a line model begins anew after </s>.
    std::uint32_t read_as(std::uint32_t word) const {
        return word == facts_.end && !facts_.is_stream ? facts_.begin : word;
    }

    // Says that `step` with these will come soon.
    void prefetch(const State& before, std::uint32_t word) const {
        if (word == kNoWord) return;
        for (std::uint32_t bits = before.found; bits; bits &= bits - 1) {
            const auto i = static_cast<std::size_t>(std::countr_zero(bits));
            if (before.children[i].size()) layout_.prefetch(i + 2, before.children[i], word);
        }
    }
    // The same again, once what `prefetch` asked for is there.
    void prefetch_rows(const State& before, std::uint32_t word) const {
        if constexpr (requires { layout_.prefetch_row(std::size_t{2}, Children{}, word); }) {
            if (word == kNoWord) return;
            for (std::uint32_t bits = before.found; bits; bits &= bits - 1) {
                const auto i = static_cast<std::size_t>(std::countr_zero(bits));
                if (before.children[i].size()) layout_.prefetch_row(i + 2, before.children[i], word);
            }
        }
    }

    // log p(word | before), and the state after it; `after` is another object than `before`.
    //
    // In a stream a text starts as a line does: <s> is read as a </s> that has nothing before it. The n-grams
    // that begin with <s> itself were seen once, where the training text starts, unless `starts_at_begin`.
    Answer step(const State& before, std::uint32_t word, State& after) const {
        const Answer answer = look_up(before, word, after);
        if (facts_.is_stream && !facts_.starts_at_begin && word == facts_.begin)
            look_up(State(), facts_.end, after);
        return answer;
    }

    // Log weight of the context of m words, as it is passed by.
    double weight(const State& state, std::size_t m) const {
        if (state.found >> (m - 1) & 1) return state.log_backoff[m - 1];
        return m <= state.reach ? log_missing_ : 0.0;
    }

    // After as many <s> as the longest context has: the beginning of a line, or of a stream.
    State begin() const {
        State one, other;
        for (std::size_t i = 1; i < order_; ++i) {
            step(one, facts_.begin, other);
            one.copy_from(other);
        }
        return one;
    }

    // After these words and no others.
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
    // As `step`, <s> being a word like any other.
    Answer look_up(const State& before, std::uint32_t word, State& after) const {
        after.found = 0;
        after.reach = log_missing_ == 0 ? 0 : reach_after(before, word);
        if (word == kNoWord) return {-std::numeric_limits<double>::infinity(), 0};
        const Found unigram = layout_.first(word);
        if (order_ > 1) keep(after, 1, unigram);
        Answer answer{unigram.log_prob, 1};
        if (log_missing_ == 0) {
            for (std::uint32_t bits = before.found; bits; bits &= bits - 1) {
                extend(before, static_cast<std::size_t>(std::countr_zero(bits)) + 1, word, answer, after);
            }
            return answer;
        }
        for (std::size_t m = 1; m < order_; ++m) {
            if (before.found >> (m - 1) & 1) {
                extend(before, m, word, answer, after);
            } else if (m <= before.reach) {
                answer.log_prob += log_missing_;
            }
        }
        return answer;
    }
    std::uint32_t reach_after(const State& before, std::uint32_t word) const {
        const std::uint32_t reach = word == facts_.begin ? 1 : before.reach + 1;
        return std::min(reach, static_cast<std::uint32_t>(order_ - 1));
    }
    // A context that nothing continues and that weighs nothing is as good as none where none weighs nothing.
    void keep(State& after, std::size_t m, const Found& found) const {
        if (!found.children.size() && found.log_backoff == 0 && log_missing_ == 0) return;
        after.found |= 1u << (m - 1);
        after.children[m - 1] = found.children;
        after.log_backoff[m - 1] = found.log_backoff;
    }
    void extend(const State& before, std::size_t m, std::uint32_t word, Answer& answer, State& after) const {
        const Children in = before.children[m - 1];
        if (in.size()) {
            const Found found = layout_.find(m + 1, in, word);
            if (found.is_there) {
                answer = {found.log_prob, static_cast<std::uint32_t>(m + 1)};
                if (m + 1 < order_) keep(after, m + 1, found);
                return;
            }
        }
        answer.log_prob += before.log_backoff[m - 1];
    }

    const Layout& layout_;
    ModelFacts facts_;
    std::size_t order_;
    double log_missing_;
};

}  // namespace chainrule
