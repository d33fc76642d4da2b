// KenLM-compatible scoring over any model: base-10 logarithms, words split at ASCII white space, and −100,
// KenLM's value for unknown words without <unk>, for impossible words.
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

inline constexpr double kLog10 = 0.43429448190325182765;  // log10 of e
inline constexpr double kImpossibleLog10 = -100;

// White space as in Python's bytes.split().
inline bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

struct KenlmResult {
    double log_prob;       // to base 10
    std::uint32_t length;  // length of the matched n-gram
    bool is_unknown;
};

class KenlmModel {
  public:
    explicit KenlmModel(std::shared_ptr<const Model> model)
        : model_(std::move(model)), is_short_(model_->metadata().log_missing == 0), begin_(model_->begin()) {
        if (!model_->names()) throw Error("this model stores word ids only, without a vocabulary");
        if (is_short_) begin_.reach = 0;
    }

    const Model& model() const { return *model_; }
    const State& begin() const { return begin_; }
    bool knows(std::string_view word) const {
        const std::int64_t id = model_->names()->find(word);
        return id >= 0 && static_cast<std::uint32_t>(id) != model_->metadata().unknown;
    }

    // `after` must not alias `before`.
    KenlmResult step(const State& before, std::string_view word, State& after) const {
        const std::int64_t id = model_->names()->find(word);
        const std::uint32_t unknown = model_->metadata().unknown;
        const std::uint32_t number = id >= 0 ? static_cast<std::uint32_t>(id) : unknown;
        return read(before, number, after, number == unknown);
    }
    KenlmResult end(const State& before, State& after) const {
        return read(before, model_->metadata().end, after, false);
    }

    // Calls `use` with the result of each word, and of </s> if the sentence ends.
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
    KenlmResult read(const State& before, std::uint32_t word, State& after, bool is_unknown) const {
        const StepResult answer = model_->step(before, word, after);
        // The number of words read does not affect later scores, so states compare equal without it.
        if (is_short_) after.reach = 0;
        const double log_prob =
            std::isfinite(answer.log_prob) ? answer.log_prob * kLog10 : impossible(before);
        return {log_prob, std::max<std::uint32_t>(answer.length, 1), is_unknown};
    }
    // Adds the back-off weights of all contexts, none of which contains the word.
    static double impossible(const State& before) {
        double sum = 0;
        for (std::uint32_t bits = before.stored; bits; bits &= bits - 1) {
            sum += before.log_backoff[static_cast<std::size_t>(std::countr_zero(bits))];
        }
        return std::isfinite(sum) ? kImpossibleLog10 + sum * kLog10 : kImpossibleLog10;
    }

    std::shared_ptr<const Model> model_;
    bool is_short_;
    State begin_;
};

}  // namespace chainrule
