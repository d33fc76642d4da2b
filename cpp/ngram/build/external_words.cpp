// Order 1: every word has a row.
#include <algorithm>

#include "ngram/build/external_trainer.hpp"

namespace chainrule {

void ExternalTrainer::count_words() {
    const bool is_top = options_.order == 1;
    SpillWriter rows(rows_, space_.stream), left_words(lefts_, space_.stream);
    std::uint32_t next = 0;
    CountedRow row;
    const auto finish = [&](std::uint32_t to) {  // words that the text lacks have a row too
        for (; next < to; ++next) {
            row.word = next;
            row.count = times_[next];
            if (is_top) row.adjusted = row.count;
            row.write(rows);
            ++counts_of_counts_[std::min(row.adjusted, 5u)];
            row.adjusted = 0;
        }
    };
    dealing_->sorted([&](std::uint32_t word, const std::uint32_t* record, std::size_t count) {
        if (word > next) finish(word);
        for (std::size_t i = 0; i < count; ++i, record += options_.order) {
            if (record[0] & kMark) last_row_ = word;
            if (!is_top) row.adjusted += note_lefts(record, 1, word, left_words);
        }
    });
    finish(text_.vocabulary);
    size_ = text_.vocabulary;
    rows.flush();
    left_words.flush();
}

// Order 1, over the uniform distribution of what can be predicted.
void ExternalTrainer::estimate_words() {
    const DiscountRow& D = discounts_.back().of;
    const std::uint64_t numbers = size_ * CountedRow::kWidth;
    SpilledLevel& level = levels_.back();
    level = {new_file(), new_file(), {}, {}, size_};
    Behind behind;
    SpillReader counting(rows_, space_.stream, 0, numbers);
    for (std::uint32_t w = 0; w < size_; ++w) behind.keep(CountedRow::read(counting).adjusted);
    const Mass mass = behind.mass(D);
    const double uniform = 1.0 / static_cast<double>(size_ - 1 - (options_.unknown < size_));
    SpillReader rows(rows_, space_.stream, 0, numbers),
        left_words(lefts_, space_.stream, 0, occurrences_ * lefts(1));
    SpillWriter words(level.word, space_.stream);
    LogWriter logs(level.log_prob, space_.stream);
    occurrences_ = 0;
    for (std::uint32_t w = 0; w < size_; ++w) {
        const CountedRow row = CountedRow::read(rows);
        const bool is_predictable = w != text_.begin && w != options_.unknown;
        const double p =
            share_of(row.adjusted, D, mass.total) + (is_predictable ? mass.gamma * uniform : 0.0);
        words.push(w);
        logs.push(p);
        if (options_.order > 1) deal(left_words, 1, w, row, p);
    }
    words.flush();
    logs.flush();
    if (options_.order > 1) dealing_->finish();
}

}  // namespace chainrule
