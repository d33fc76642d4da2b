#include "ngram/build/external.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "base/error.hpp"
#include "base/logarithm.hpp"
#include "base/spill_file.hpp"
#include "ngram/build/bucket_sort.hpp"
#include "ngram/build/discounts.hpp"
#include "ngram/build/memory_budget.hpp"

namespace chainrule {

namespace {

// A row during counting and estimation; five numbers in the file.
struct CountedRow {
    static constexpr std::size_t kWidth = 5;

    std::uint32_t word = 0, count = 0;
    std::uint32_t adjusted = 0;  // adjusted count of Kneser–Ney
    double shorter = 0;          // p of the suffix

    void write(SpillWriter& rows) const {
        std::uint32_t* const to = rows.next(kWidth);
        to[0] = word;
        to[1] = count;
        to[2] = adjusted;
        std::memcpy(to + 3, &shorter, sizeof shorter);
    }
    static CountedRow read(SpillReader& rows) {
        const std::uint32_t* const from = rows.next(kWidth);
        CountedRow row{from[0], from[1], from[2]};
        std::memcpy(&row.shorter, from + 3, sizeof row.shorter);
        return row;
    }
};

// Numbers after the words of a record, from order 1 on: suffix row, last word, p of the suffix (two numbers).
constexpr std::size_t kTail = 4;

// Writes log p in single precision; logarithms are taken in blocks, which vectorises.
class LogWriter {
  public:
    LogWriter(SpillFile& file, std::size_t buffered) : writer_(file, std::max(buffered, kGathered)) {}

    void push(double p) {
        gathered_[size_++] = p;
        if (size_ == kGathered) gather();
    }
    void flush() {
        gather();
        writer_.flush();
    }

  private:
    static constexpr std::size_t kGathered = 512;

    void gather() {
        std::array<float, kGathered> logs;
        for (std::size_t i = 0; i < kGathered; ++i) logs[i] = static_cast<float>(logarithm(gathered_[i]));
        std::memcpy(writer_.next(size_), logs.data(), size_ * sizeof(float));
        size_ = 0;
    }

    SpillWriter writer_;
    std::size_t size_ = 0;
    std::array<double, kGathered> gathered_{};
};

// The external trainer: its files and tables, and the passes over them.

constexpr std::uint32_t kNoRow = 0xFFFFFFFF;

class ExternalTrainer {
  public:
    ExternalTrainer(const IdSource& ids, const TextMetadata& text, const ExternalOptions& options);

    ExternalModel run();

  private:
    std::size_t lefts(std::size_t n) const {
        return options_.order - n;
    }  // number of left-context words stored per n-gram
    SpillFile new_file() const { return SpillFile(folder_); }
    void report() {
        if (options_.progress) options_.progress(++done_, 2 * options_.order + 1);
    }
    void scan_text();
    void distribute_text();
    void count_words();
    void estimate_unigrams();
    void count_order(std::size_t n);
    void estimate_order(std::size_t n);
    void begin_counting(std::size_t n);
    void end_counting(std::size_t n);
    std::uint32_t record_left_words(const std::uint32_t* record, std::size_t n, std::uint32_t row,
                                    SpillWriter& into);
    void distribute(SpillReader& lefts, std::size_t n, std::uint32_t row, const CountedRow& result, double p);
    std::uint32_t follower_count(const CountedRow& context, std::uint32_t row, std::size_t n) const;

    const IdSource& ids_;
    const TextMetadata text_;
    const ExternalOptions& options_;
    std::vector<std::uint32_t> cut_offs_;
    std::shared_ptr<const SpillFolder> folder_;
    std::uint64_t tokens_ = 0;
    std::size_t writers_ = 1;
    std::size_t done_ = 0;
    BucketSortMemory space_;

    std::optional<BucketSorter> sorter_;              // for the order to be counted next
    UninitializedBuffer<std::uint32_t> times_;        // occurrences of that order by first word
    UninitializedBuffer<std::uint32_t> next_times_;   // occurrences of the order above
    UninitializedBuffer<std::uint32_t> last_row_of_;  // [word]: the last row that this word preceded
    SpillFile rows_, rows_below_;                     // of the current order and of the one below
    SpillFile lefts_;                                 // words to the left of each occurrence
    std::uint64_t size_ = 0, size_below_ = 0, occurrences_ = 0;
    std::uint64_t begins_from_ = 0, begins_to_ = 0;  // rows that begin with <s>
    std::uint32_t last_row_ = kNoRow,
                  last_row_below_ = kNoRow;  // stream only: row of the last n-gram of the text
    std::uint64_t last_occurrence_ = 0;      // index of its occurrence; undefined if …
    bool is_last_carried_ = false;           // … it begins with <s>
    std::array<std::uint64_t, 6> counts_of_counts_{};
    std::vector<SpilledLevel> levels_;
    std::vector<Discounts> discounts_;
};

// Records the left words of an occurrence; returns 1 if the nearest one is new for its row.
std::uint32_t ExternalTrainer::record_left_words(const std::uint32_t* record, std::size_t n,
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
    return std::exchange(last_row_of_[left], row) != row;
}

// Passes the occurrences of a row on to the next order, keyed by the word to their left.
void ExternalTrainer::distribute(SpillReader& left_words, std::size_t n, std::uint32_t row,
                                 const CountedRow& result, double p) {
    const std::size_t count = lefts(n);
    for (std::uint32_t i = 0; i < result.count; ++i, ++occurrences_) {
        const std::uint32_t* const words = left_words.next(count);
        std::uint32_t* const record = sorter_->next(words[0]);
        for (std::size_t k = 0; k < count; ++k) record[k] = words[k];
        if (is_last_carried_ && occurrences_ == last_occurrence_) record[0] |= kMark;
        record[count] = row;
        record[count + 1] = result.word;
        std::memcpy(record + count + 2, &p, sizeof p);
    }
}

constexpr std::size_t kAtOnce = 1 << 16;

constexpr std::uint64_t kMaxTokens =
    (std::uint64_t{1} << 31) - 1;  // as for training in memory: one bit is a flag

ExternalTrainer::ExternalTrainer(const IdSource& ids, const TextMetadata& text,
                                 const ExternalOptions& options)
    : ids_(ids), text_(text), options_(options), cut_offs_(check_cut_offs(options.cut_offs, options.order)) {
    if (text.begin >= text.vocabulary || text.end >= text.vocabulary || text.begin == text.end)
        throw ArgumentError("<s> and </s> must have different ids below the vocabulary size");
    trim_heap();
    const std::uint64_t in_use = memory_in_use();
    times_ = UninitializedBuffer<std::uint32_t>(text.vocabulary);
    next_times_ = UninitializedBuffer<std::uint32_t>(text.vocabulary);
    last_row_of_ = UninitializedBuffer<std::uint32_t>(text.vocabulary);
    scan_text();
    const TrainingSize size{tokens_, text.vocabulary, options.order, options.is_small, options.is_quantized};
    const Budget budget = plan_memory(options.memory, in_use, size, options.threads);
    writers_ = writer_threads_within(options.memory, in_use, size, options.threads);
    folder_ = std::make_shared<SpillFolder>(SpillFolder{options.folder, disk_required(size)});
    space_ = {UninitializedBuffer<std::uint32_t>(budget.sorted, Access::scattered),
              UninitializedBuffer<std::uint32_t>(budget.ahead, Access::scattered), budget.buckets,
              budget.stream, options.records};
}

ExternalModel ExternalTrainer::run() {
    distribute_text();
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
            estimate_unigrams();
        else
            estimate_order(n);
        std::swap(times_, next_times_);  // by first word of the records of the next order
        report();
    }
    return {std::make_unique<SpilledRows>(std::move(levels_)), std::move(discounts_), writers_};
}

// Counts words and validates the ids.
void ExternalTrainer::scan_text() {
    std::fill(times_.begin(), times_.end(), 0);
    std::uint64_t lines = 0;
    std::uint32_t last = text_.end;
    ids_.read([&](std::span<const std::int32_t> ids) {
        for (const std::int32_t id : ids) {
            last = static_cast<std::uint32_t>(id);
            if (last >= text_.vocabulary)
                throw ArgumentError("the text contains the id " + std::to_string(id) +
                                    "; ids must be below the vocabulary size, " +
                                    std::to_string(text_.vocabulary));
            if (last == text_.begin)
                throw ArgumentError(
                    "the text contains the id of <s>, which is added to each line automatically; remove it");
            lines += last == text_.end;
            ++times_[last];
        }
        tokens_ += ids.size();
        if (tokens_ + lines > kMaxTokens) throw ArgumentError("the text has more than 2147483647 tokens");
    });
    if (!text_.is_stream && last != text_.end)
        throw ArgumentError("the last line of the text does not end with </s>");
}

// Distributes every token, with its left words, to the buckets of order 1.
void ExternalTrainer::distribute_text() {
    sorter_.emplace(folder_, space_, std::span<const std::uint32_t>(times_.data(), times_.size()),
                    options_.order);
    const std::size_t width = options_.order;
    std::vector<std::uint32_t> before(width, text_.begin);  // preceding words, nearest first
    std::uint64_t at = 0;
    ids_.read([&](std::span<const std::int32_t> ids) {
        for (const std::int32_t id : ids) {
            const auto word = static_cast<std::uint32_t>(id);
            std::uint32_t* const record = sorter_->next(word);
            std::copy_n(before.begin(), width - 1, record + 1);
            record[0] = text_.is_stream && ++at == tokens_ ? word | kMark : word;
            for (std::size_t i = width - 1; i > 0; --i) before[i] = before[i - 1];
            before[0] = word;
            // Words to the left of <s> are never used.
            if (!text_.is_stream && word == text_.end) before[0] = text_.begin;
        }
    });
    sorter_->finish();
}

void ExternalTrainer::begin_counting(std::size_t n) {
    rows_below_ = std::exchange(rows_, new_file());
    lefts_ = n < options_.order ? new_file() : SpillFile();
    size_below_ = std::exchange(size_, 0);
    last_row_below_ = std::exchange(last_row_, kNoRow);
    is_last_carried_ = false;
    occurrences_ = begins_from_ = begins_to_ = 0;
    counts_of_counts_ = {};
    std::fill(last_row_of_.begin(), last_row_of_.end(), kNoRow);
    std::fill(next_times_.begin(), next_times_.end(), 0);
}

void ExternalTrainer::end_counting(std::size_t n) {
    sorter_.reset();
    std::array<std::uint64_t, 5> counts{};
    std::copy_n(counts_of_counts_.begin(), 5, counts.begin());
    discounts_.push_back(modified_discounts(counts));
    if (n == options_.order) return;
    sorter_.emplace(folder_, space_, std::span<const std::uint32_t>(next_times_.data(), next_times_.size()),
                    lefts(n) + kTail);
}

// Order 1: every word has a row.

void ExternalTrainer::count_words() {
    const bool is_top = options_.order == 1;
    SpillWriter rows(rows_, space_.stream), left_words(lefts_, space_.stream);
    std::uint32_t next = 0;
    CountedRow row;
    const auto finish = [&](std::uint32_t to) {  // words that do not occur also have a row
        for (; next < to; ++next) {
            row.word = next;
            row.count = times_[next];
            if (is_top) row.adjusted = row.count;
            row.write(rows);
            ++counts_of_counts_[std::min(row.adjusted, 5u)];
            row.adjusted = 0;
        }
    };
    sorter_->sorted([&](std::uint32_t word, const std::uint32_t* record, std::size_t count) {
        if (word > next) finish(word);
        for (std::size_t i = 0; i < count; ++i, record += options_.order) {
            if (record[0] & kMark) last_row_ = word;
            if (!is_top) row.adjusted += record_left_words(record, 1, word, left_words);
        }
    });
    finish(text_.vocabulary);
    size_ = text_.vocabulary;
    rows.flush();
    left_words.flush();
}

// Order 1, interpolated with the uniform distribution over predictable words.
void ExternalTrainer::estimate_unigrams() {
    const DiscountRow& D = discounts_.back().of;
    const std::uint64_t numbers = size_ * CountedRow::kWidth;
    SpilledLevel& level = levels_.back();
    level = {new_file(), new_file(), {}, {}, size_};
    ContextCounts behind;
    SpillReader counting(rows_, space_.stream, 0, numbers);
    for (std::uint32_t w = 0; w < size_; ++w) behind.keep(CountedRow::read(counting).adjusted);
    const ContextMass mass = behind.mass(D);
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
            discounted_share(row.adjusted, D, mass.total) + (is_predictable ? mass.gamma * uniform : 0.0);
        words.push(w);
        logs.push(p);
        if (options_.order > 1) distribute(left_words, 1, w, row, p);
    }
    words.flush();
    logs.flush();
    if (options_.order > 1) sorter_->finish();
}

// Orders above 1.

void ExternalTrainer::count_order(std::size_t n) {
    const bool is_top = n == options_.order;
    const std::size_t width = 1 + lefts(n) + kTail;
    SpillWriter rows(rows_, space_.stream), left_words(lefts_, space_.stream);
    CountedRow row;
    std::uint32_t number = kNoRow, suffix = kNoRow, first_word = kNoRow;  // of the current row
    std::uint32_t different = 0;                                          // distinct words to its left
    const auto finish = [&] {
        if (number == kNoRow) return;
        row.adjusted = is_top || first_word == text_.begin ? row.count : different;
        ++counts_of_counts_[std::min(row.adjusted, 5u)];
        row.write(rows);
    };
    sorter_->sorted([&](std::uint32_t word, const std::uint32_t* record, std::size_t count) {
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
            if (!is_top && !begins) different += record_left_words(record, n, number, left_words);
        }
        if (begins) begins_to_ = number + 1;
    });
    finish();
    size_ = number + 1;
    rows.flush();
    left_words.flush();
}

// Number of occurrences of n-grams whose context is this row of the order below.
std::uint32_t ExternalTrainer::follower_count(const CountedRow& context, std::uint32_t row,
                                              std::size_t n) const {
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
    std::uint32_t number = 0, kept_rows = 0;
    for (std::uint32_t h = 0; h < size_below_; ++h) {
        const CountedRow context = CountedRow::read(contexts);
        const bool is_kept = n == 2 || context.count > cut_off_below;
        if (is_kept) firsts.push(kept_rows);
        const std::uint32_t occurrences = follower_count(context, h, n);
        ContextCounts behind;
        std::uint32_t size = 0;
        for (std::uint32_t at = 0; at < occurrences; ++size) {
            const CountedRow row = CountedRow::read(counting);
            at += row.count;
            if (row.count > cut_off)
                behind.keep(row.adjusted);
            else
                behind.add_pruned(row.adjusted);
        }
        const ContextMass mass = behind.mass(D);
        if (is_kept) backoffs.push(mass.gamma);
        for (std::uint32_t i = 0; i < size; ++i, ++number) {
            const CountedRow row = CountedRow::read(rows);
            double p = 0;  // unused for pruned n-grams: longer n-grams with this suffix are pruned too
            if (row.count > cut_off) {
                p = discounted_share(row.adjusted, D, mass.total) + mass.gamma * row.shorter;
                words.push(row.word);
                logs.push(p);
                ++kept_rows;
            }
            if (!is_top && (number < begins_from_ || number >= begins_to_))
                distribute(left_words, n, number, row, p);
        }
    }
    firsts.push(kept_rows);
    level.size = kept_rows;
    words.flush();
    firsts.flush();
    logs.flush();
    backoffs.flush();
    if (!is_top) sorter_->finish();
}

}  // namespace

void IdFile::read(const std::function<void(std::span<const std::int32_t>)>& use) const {
    static_assert(std::endian::native == std::endian::little);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path_.c_str(), "rb"), &std::fclose);
    if (!file) throw IoError(path_ + " cannot be read");
    std::setvbuf(file.get(), nullptr, _IONBF, 0);  // reads are already block-sized
    UninitializedBuffer<std::int32_t> numbers(kAtOnce);
    while (true) {
        const std::size_t bytes = std::fread(numbers.data(), 1, kAtOnce * sizeof(std::int32_t), file.get());
        if (std::ferror(file.get())) throw IoError(path_ + " cannot be read");
        if (bytes % sizeof(std::int32_t) != 0)
            throw IoError(path_ + " is truncated: its size is not a multiple of 4 bytes; create it again");
        if (bytes > 0) use({numbers.data(), bytes / sizeof(std::int32_t)});
        if (bytes < kAtOnce * sizeof(std::int32_t)) return;
    }
}

void SpilledRows::read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word,
                       float* log_prob, float* log_backoff, std::uint32_t* first) const {
    const SpilledLevel& level = levels_[n - 1];
    const bool is_top = n == levels_.size();
    if (word) level.word.read(from, word, count);
    if (log_prob) level.log_prob.read(from, log_prob, count);
    if (log_backoff && is_top) std::fill_n(log_backoff, count, 0.0F);
    if (log_backoff && !is_top) level.log_backoff.read(from, log_backoff, count);
    if (first && !is_top) level.first.read(from, first, count + 1);
}

ExternalModel estimate_external(const IdSource& ids, const TextMetadata& text,
                                const ExternalOptions& options) {
    if (options.order == 0) throw ArgumentError("the order of an n-gram model is 1 or more");
    return ExternalTrainer(ids, text, options).run();
}

}  // namespace chainrule
