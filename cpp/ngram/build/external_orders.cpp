// The orders above 1, each from the occurrences that the one below dealt.
#include <algorithm>
#include <cstring>

#include "ngram/build/external_trainer.hpp"

namespace chainrule {

void ExternalTrainer::count_order(std::size_t n) {
    const bool is_top = n == options_.order;
    const std::size_t width = 1 + lefts(n) + kTail;
    SpillWriter rows(rows_, space_.stream), left_words(lefts_, space_.stream);
    CountedRow row;
    std::uint32_t number = kNoRow, suffix = kNoRow, first_word = kNoRow;  // of the row in hand
    std::uint32_t different = 0;                                          // words to its left
    const auto finish = [&] {
        if (number == kNoRow) return;
        row.adjusted = is_top || first_word == text_.begin ? row.count : different;
        ++counts_of_counts_[std::min(row.adjusted, 5u)];
        row.write(rows);
    };
    dealing_->sorted([&](std::uint32_t word, const std::uint32_t* record, std::size_t count) {
        const bool begins = word == text_.begin;
        for (std::size_t i = 0; i < count; ++i, record += width) {
            const std::uint32_t* const tail = record + 1 + lefts(n);
            if (word != first_word || tail[0] != suffix) {
                finish();
                if (word != first_word && begins) begins_from_ = number + 1;
                ++number;
                first_word = word;
                suffix = tail[0];
                row = {tail[1], 0, 0};
                std::memcpy(&row.shorter, tail + 2, sizeof row.shorter);
                different = 0;
            }
            ++row.count;
            if (record[0] & kMark) last_row_ = number;
            if (!is_top && !begins) different += note_lefts(record, n, number, left_words);
        }
        if (begins) begins_to_ = number + 1;
    });
    finish();
    size_ = number + 1;
    rows.flush();
    left_words.flush();
}

// How many n-grams follow a row of the order below, as often as they stand in the text.
std::uint32_t ExternalTrainer::followed(const CountedRow& context, std::uint32_t row, std::size_t n) const {
    if (n == 2 && context.word == text_.begin) return times_[text_.begin];
    if (!text_.is_stream && context.word == text_.end) return 0;
    return context.count - (row == last_row_below_);
}

void ExternalTrainer::estimate_order(std::size_t n) {
    const DiscountRow& D = discounts_.back().of;
    const bool is_top = n == options_.order;
    const std::uint32_t cut_off = cut_offs_[n - 1], cut_off_below = n > 2 ? cut_offs_[n - 2] : 0;
    SpilledLevel &level = levels_.back(), &below = levels_[n - 2];
    level = {new_file(), new_file(), {}, {}, 0};
    below.log_backoff = new_file();
    below.first = new_file();
    const std::size_t buffered = space_.stream;
    SpillReader contexts(rows_below_, buffered, 0, size_below_ * CountedRow::kWidth);
    SpillReader counting(rows_, buffered, 0, size_ * CountedRow::kWidth),
        rows(rows_, buffered, 0, size_ * CountedRow::kWidth);
    SpillReader left_words(lefts_, buffered, 0, occurrences_ * lefts(n));
    SpillWriter words(level.word, buffered), firsts(below.first, buffered);
    LogWriter logs(level.log_prob, buffered), backoffs(below.log_backoff, buffered);
    occurrences_ = 0;
    std::uint32_t number = 0, kept = 0;
    for (std::uint32_t h = 0; h < size_below_; ++h) {
        const CountedRow context = CountedRow::read(contexts);
        const bool is_kept = n == 2 || context.count > cut_off_below;
        if (is_kept) firsts.push(kept);
        const std::uint32_t occurrences = followed(context, h, n);
        Behind behind;
        std::uint32_t size = 0;
        for (std::uint32_t at = 0; at < occurrences; ++size) {
            const CountedRow row = CountedRow::read(counting);
            at += row.count;
            if (row.count > cut_off)
                behind.keep(row.adjusted);
            else
                behind.leave_out(row.adjusted);
        }
        const Mass mass = behind.mass(D);
        if (is_kept) backoffs.push(mass.gamma);
        for (std::uint32_t i = 0; i < size; ++i, ++number) {
            const CountedRow row = CountedRow::read(rows);
            double p = 0;  // of what is cut off nothing asks: longer n-grams that end with it are too
            if (row.count > cut_off) {
                p = share_of(row.adjusted, D, mass.total) + mass.gamma * row.shorter;
                words.push(row.word);
                logs.push(p);
                ++kept;
            }
            if (!is_top && (number < begins_from_ || number >= begins_to_))
                deal(left_words, n, number, row, p);
        }
    }
    firsts.push(kept);
    level.size = kept;
    words.flush();
    firsts.flush();
    logs.flush();
    backoffs.flush();
    if (!is_top) dealing_->finish();
}

}  // namespace chainrule
