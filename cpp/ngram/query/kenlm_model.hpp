// What the `kenlm` module says of a sentence, over any model: logarithms to base 10, words cut at ASCII white
// space, and what is impossible here given the −100 that KenLM gives unknown words of a model without <unk>.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "ngram/query/model.hpp"

namespace chainrule {

inline constexpr double kLog10 = 0.43429448190325182765;  // of e
inline constexpr double kImpossibleLog10 = -100;

// As bytes.split() of Python: blank, tab, line feed, vertical tab, form feed, carriage return.
inline bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

struct KenlmAnswer {
    double log_prob;       // to base 10
    std::uint32_t length;  // words in the n-gram that answered
    bool is_unknown;
};

class KenlmModel {
  public:
    explicit KenlmModel(std::shared_ptr<const Model> model)
        : model_(std::move(model)), is_short_(model_->facts().log_missing == 0), begin_(model_->begin()) {
        if (!model_->names()) throw Failure("this model knows words by number alone; it has no names");
        if (is_short_) begin_.reach = 0;
    }

    const Model& model() const { return *model_; }
    const State& begin() const { return begin_; }
    bool knows(std::string_view word) const {
        const std::int64_t found = model_->names()->find(word);
        return found >= 0 && static_cast<std::uint32_t>(found) != model_->facts().unknown;
    }

    // `after` is another object than `before`.
    KenlmAnswer step(const State& before, std::string_view word, State& after) const {
        const std::int64_t found = model_->names()->find(word);
        const std::uint32_t unknown = model_->facts().unknown;
        const std::uint32_t number = found >= 0 ? static_cast<std::uint32_t>(found) : unknown;
        return read(before, number, after, number == unknown);
    }
    KenlmAnswer end(const State& before, State& after) const {
        return read(before, model_->facts().end, after, false);
    }

    // `use` gets the answer for each word, and for </s> where the sentence ends.
    template <class Use>
    void each(std::string_view sentence, bool begins, bool ends, const Use& use) const {
        State states[2];
        State *before = &states[0], *after = &states[1];
        if (begins) before->copy_from(begin_);
        const char *at = sentence.data(), *const stop = at + sentence.size();
        for (;;) {
            while (at < stop && is_white(*at)) ++at;
            if (at == stop) break;
            const char* const from = at;
            while (at < stop && !is_white(*at)) ++at;
            use(step(*before, {from, static_cast<std::size_t>(at - from)}, *after));
            std::swap(before, after);
        }
        if (ends) use(end(*before, *after));
    }

  private:
    KenlmAnswer read(const State& before, std::uint32_t word, State& after, bool is_unknown) const {
        const Answer answer = model_->step(before, word, after);
        // How many words were read matters to nothing that follows, so that states are equal without it.
        if (is_short_) after.reach = 0;
        const double log_prob =
            std::isfinite(answer.log_prob) ? answer.log_prob * kLog10 : impossible(before);
        return {log_prob, std::max<std::uint32_t>(answer.length, 1), is_unknown};
    }
    // With the weights of all contexts, none of which knows the word.
    static double impossible(const State& before) {
        double sum = 0;
        for (std::uint32_t bits = before.found; bits; bits &= bits - 1) {
            sum += before.log_backoff[static_cast<std::size_t>(std::countr_zero(bits))];
        }
        return std::isfinite(sum) ? kImpossibleLog10 + sum * kLog10 : kImpossibleLog10;
    }

    std::shared_ptr<const Model> model_;
    bool is_short_;
    State begin_;
};

}  // namespace chainrule
