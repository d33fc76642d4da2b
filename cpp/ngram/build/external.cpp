#include "ngram/build/external.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "ngram/build/external_trainer.hpp"

namespace chainrule {

namespace {

constexpr std::uint64_t kMostTokens = (std::uint64_t{1} << 31) - 1;  // as in memory: one bit is for a mark

}  // namespace

ExternalTrainer::ExternalTrainer(const IdSource& ids, const TextFacts& text, const ExternalOptions& options)
    : ids_(ids),
      text_(text),
      options_(options),
      cut_offs_(checked_cut_offs(options.cut_offs, options.order)) {
    if (text.begin >= text.vocabulary || text.end >= text.vocabulary || text.begin == text.end)
        throw Failure("<s> and </s> must be two numbers below the size of the vocabulary");
    give_unused_back();
    const std::uint64_t in_use = memory_in_use();
    times_ = Array<std::uint32_t>(text.vocabulary);
    next_times_ = Array<std::uint32_t>(text.vocabulary);
    seen_ = Array<std::uint32_t>(text.vocabulary);
    look_through();
    const Size size{tokens_, text.vocabulary, options.order, options.is_small, options.is_quantized};
    const Budget budget = budget_within(options.memory, in_use, size, options.threads);
    writers_ = writers_within(options.memory, in_use, size, options.threads);
    folder_ = std::make_shared<SpillFolder>(SpillFolder{options.folder, disk_needed(size)});
    space_ = {Array<std::uint32_t>(budget.sorted, Access::scattered),
              Array<std::uint32_t>(budget.ahead, Access::scattered), budget.dealt, budget.stream,
              options.records};
}

ExternalModel ExternalTrainer::run() {
    deal_text();
    report();
    for (std::size_t n = 1; n <= options_.order; ++n) {
        levels_.emplace_back();
        begin_counting(n);
        if (n == 1)
            count_words();
        else
            count_order(n);
        end_counting(n);
        report();
        if (n == 1)
            estimate_words();
        else
            estimate_order(n);
        std::swap(times_, next_times_);  // by the first word of what was dealt
        report();
    }
    return {std::make_unique<SpilledRows>(std::move(levels_)), std::move(discounts_), writers_};
}

// How often each word comes, and whether the numbers are what they should be.
void ExternalTrainer::look_through() {
    std::fill(times_.begin(), times_.end(), 0);
    std::uint64_t lines = 0;
    std::uint32_t last = text_.end;
    ids_.read([&](std::span<const std::int32_t> ids) {
        for (const std::int32_t id : ids) {
            last = static_cast<std::uint32_t>(id);
            if (last >= text_.vocabulary)
                throw Failure("the text holds the number " + std::to_string(id) +
                              ", which is not below the " + std::to_string(text_.vocabulary) +
                              " of the vocabulary");
            if (last == text_.begin) throw Failure("the text holds <s>, which lines are given here");
            lines += last == text_.end;
            ++times_[last];
        }
        tokens_ += ids.size();
        if (tokens_ + lines > kMostTokens) throw Failure("the text has more than 2147483647 tokens");
    });
    if (!text_.is_stream && last != text_.end)
        throw Failure("the last line of the text does not end with </s>");
}

// Every token with the words to its left, to its place among those of order 1.
void ExternalTrainer::deal_text() {
    dealing_.emplace(folder_, space_, std::span<const std::uint32_t>(times_.data(), times_.size()),
                     options_.order);
    const std::size_t width = options_.order;
    std::vector<std::uint32_t> before(width, text_.begin);  // the last words, the nearest first
    std::uint64_t at = 0;
    ids_.read([&](std::span<const std::int32_t> ids) {
        for (const std::int32_t id : ids) {
            const auto word = static_cast<std::uint32_t>(id);
            std::uint32_t* const record = dealing_->next(word);
            std::copy_n(before.begin(), width - 1, record + 1);
            record[0] = text_.is_stream && ++at == tokens_ ? word | kMark : word;
            for (std::size_t i = width - 1; i > 0; --i) before[i] = before[i - 1];
            before[0] = word;
            // What would be to the left of <s> is never asked for.
            if (!text_.is_stream && word == text_.end) before[0] = text_.begin;
        }
    });
    dealing_->finish();
}

void ExternalTrainer::begin_counting(std::size_t n) {
    rows_below_ = std::exchange(rows_, new_file());
    lefts_ = n < options_.order ? new_file() : SpillFile();
    size_below_ = std::exchange(size_, 0);
    last_row_below_ = std::exchange(last_row_, kNoRow);
    is_last_carried_ = false;
    occurrences_ = begins_from_ = begins_to_ = 0;
    counts_of_counts_ = {};
    std::fill(seen_.begin(), seen_.end(), kNoRow);
    std::fill(next_times_.begin(), next_times_.end(), 0);
}

void ExternalTrainer::end_counting(std::size_t n) {
    dealing_.reset();
    std::array<std::uint64_t, 5> counts{};
    std::copy_n(counts_of_counts_.begin(), 5, counts.begin());
    discounts_.push_back(modified_discounts(counts));
    if (n == options_.order) return;
    dealing_.emplace(folder_, space_, std::span<const std::uint32_t>(next_times_.data(), next_times_.size()),
                     lefts(n) + kTail);
}

ExternalModel estimate_within(const IdSource& ids, const TextFacts& text, const ExternalOptions& options) {
    if (options.order == 0) throw Failure("the order of an n-gram model is 1 or more");
    return ExternalTrainer(ids, text, options).run();
}

}  // namespace chainrule
