// Training within a limit of memory as one object: its files and tables, and the passes over them.
//
// Here is what all passes share; the passes over the text stand in ngram/build/external.cpp, those of order 1
// in ngram/build/external_words.cpp, those of the orders above in ngram/build/external_orders.cpp. All of
// them are compiled with -ffp-contract=off.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/temp_file.hpp"
#include "ngram/build/bucket_sort.hpp"
#include "ngram/build/discounting.hpp"
#include "ngram/build/external.hpp"
#include "ngram/build/external_records.hpp"
#include "ngram/build/memory_budget.hpp"

namespace chainrule {

inline constexpr std::uint32_t kNoRow = 0xFFFFFFFF;

class ExternalTrainer {
  public:
    ExternalTrainer(const IdSource& ids, const TextFacts& text, const ExternalOptions& options);

    ExternalModel run();

  private:
    std::size_t lefts(std::size_t n) const { return options_.order - n; }  // words that an n-gram carries
    SpillFile new_file() const { return SpillFile(folder_); }
    void report() {
        if (options_.progress) options_.progress(++done_, 2 * options_.order + 1);
    }
    void look_through();
    void deal_text();
    void count_words();
    void estimate_words();
    void count_order(std::size_t n);
    void estimate_order(std::size_t n);
    void begin_counting(std::size_t n);
    void end_counting(std::size_t n);
    std::uint32_t note_lefts(const std::uint32_t* record, std::size_t n, std::uint32_t row,
                             SpillWriter& into);
    void deal(SpillReader& lefts, std::size_t n, std::uint32_t row, const CountedRow& made, double p);
    std::uint32_t followed(const CountedRow& context, std::uint32_t row, std::size_t n) const;

    const IdSource& ids_;
    const TextFacts text_;
    const ExternalOptions& options_;
    std::vector<std::uint32_t> cut_offs_;
    std::shared_ptr<const SpillFolder> folder_;
    std::uint64_t tokens_ = 0;
    std::size_t writers_ = 1;
    std::size_t done_ = 0;
    DealingSpace space_;

    std::optional<Dealing> dealing_;   // of the order to be counted next
    Array<std::uint32_t> times_;       // by first word: occurrences of that order
    Array<std::uint32_t> next_times_;  // and of the one above
    Array<std::uint32_t> seen_;        // [word]: the last row that it stood to the left of
    SpillFile rows_, rows_below_;      // of the order in hand and of the one below
    SpillFile lefts_;                  // words to the left of its occurrences
    std::uint64_t size_ = 0, size_below_ = 0, occurrences_ = 0;
    std::uint64_t begins_from_ = 0, begins_to_ = 0;              // rows that begin with <s>
    std::uint32_t last_row_ = kNoRow, last_row_below_ = kNoRow;  // of a stream, the row that ends the text
    std::uint64_t last_occurrence_ = 0;  // its place among the occurrences; no place where …
    bool is_last_carried_ = false;       // … it begins with <s>
    std::array<std::uint64_t, 6> counts_of_counts_{};
    std::vector<SpilledLevel> levels_;
    std::vector<Discounts> discounts_;
};

// Writes down the words to the left of an occurrence; whether the nearest is a new one of its row.
inline std::uint32_t ExternalTrainer::note_lefts(const std::uint32_t* record, std::size_t n,
                                                 std::uint32_t row, SpillWriter& into) {
    const std::size_t count = lefts(n);
    std::uint32_t* const to = into.next(count);
    for (std::size_t i = 0; i < count; ++i) to[i] = record[1 + i];
    const std::uint32_t left = record[1];
    if (record[0] & kMark) {
        last_occurrence_ = occurrences_;
        is_last_carried_ = true;
    }
    ++occurrences_;
    ++next_times_[left];
    return std::exchange(seen_[left], row) != row;
}

// The occurrences of a row go on to the next order, by the word to their left.
inline void ExternalTrainer::deal(SpillReader& left_words, std::size_t n, std::uint32_t row,
                                  const CountedRow& made, double p) {
    const std::size_t count = lefts(n);
    for (std::uint32_t i = 0; i < made.count; ++i, ++occurrences_) {
        const std::uint32_t* const words = left_words.next(count);
        std::uint32_t* const record = dealing_->next(words[0]);
        for (std::size_t k = 0; k < count; ++k) record[k] = words[k];
        if (is_last_carried_ && occurrences_ == last_occurrence_) record[0] |= kMark;
        record[count] = row;
        record[count + 1] = made.word;
        std::memcpy(record + count + 2, &p, sizeof p);
    }
}

}  // namespace chainrule
