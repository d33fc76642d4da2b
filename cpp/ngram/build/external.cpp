#include "ngram/build/external.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "base/error.hpp"
#include "base/logarithm.hpp"
#include "base/parallel.hpp"
#include "base/spill_file.hpp"
#include "ngram/build/bucket_sort.hpp"
#include "ngram/build/discounts.hpp"
#include "ngram/build/memory_budget.hpp"

namespace chainrule {

namespace {

// A row during counting and estimation; five numbers in the file, where large counts are replaced by
// `max_count` (see LargeCounts).
struct CountedRow {
    static constexpr std::size_t kWidth = 5;

    std::uint32_t word = 0;
    std::uint64_t count = 0;
    std::uint64_t adjusted = 0;  // adjusted count of Kneser–Ney: the count, or less than 2^31
    double shorter = 0;          // p of the suffix
};

// Counts that do not fit into the rows of a file, by range and row.
class LargeCounts {
  public:
    explicit LargeCounts(std::uint32_t max_count) : max_count_(max_count) {}

    void write(SpillWriter& rows, std::size_t range, std::uint64_t number, const CountedRow& row) {
        std::uint32_t* const to = rows.next(CountedRow::kWidth);
        to[0] = row.word;
        to[1] = static_cast<std::uint32_t>(std::min<std::uint64_t>(row.count, max_count_));
        to[2] = row.adjusted == row.count ? to[1] : static_cast<std::uint32_t>(row.adjusted);
        std::memcpy(to + 3, &row.shorter, sizeof row.shorter);
        if (row.count < max_count_) return;
        const std::lock_guard<std::mutex> lock(mutex_);
        counts_[{range, number}] = {row.count, row.adjusted};
    }
    CountedRow read(SpillReader& rows, std::size_t range, std::uint64_t number) const {
        const std::uint32_t* const from = rows.next(CountedRow::kWidth);
        CountedRow row{from[0], from[1], from[2], 0};
        std::memcpy(&row.shorter, from + 3, sizeof row.shorter);
        if (row.count == max_count_) [[unlikely]] {
            const auto& [count, adjusted] = counts_.at({range, number});
            row.count = count;
            row.adjusted = adjusted;
        }
        return row;
    }

  private:
    std::uint32_t max_count_;
    std::mutex mutex_;
    std::map<std::pair<std::size_t, std::uint64_t>, std::pair<std::uint64_t, std::uint64_t>> counts_;
};

// The rows of one order. Those of a range have their own place in the files, with unused space behind them.
struct CountedLevel {
    CountedLevel(std::size_t ranges, std::uint32_t max_count)
        : sizes(ranges), kept_sizes(ranges), occurrences(ranges), large(max_count) {}

    SpillFile rows;
    SpillFile lefts;                         // words to the left of each occurrence
    std::vector<std::uint64_t> places;       // [range] first row in its file
    std::vector<std::uint64_t> left_places;  // [range] first occurrence in its file
    std::vector<std::uint64_t> sizes;        // [range] rows; after counting: rows before the range
    std::vector<std::uint64_t> kept_sizes;   // [range] the same without the rows of a cut-off
    std::vector<std::uint64_t> occurrences;  // [range] that have words to their left
    LargeCounts large;

    std::uint64_t size(std::size_t range) const { return sizes[range + 1] - sizes[range]; }
};

// Numbers after the words of a record, from order 1 on: suffix row, last word, p of the suffix (two numbers).
constexpr std::size_t kTail = 4;

// Writes log p in single precision; logarithms are taken in blocks, which vectorises.
class LogWriter {
  public:
    LogWriter(SpillFile& file, std::size_t buffered, std::uint64_t from)
        : writer_(file, std::max(buffered, kGathered), from) {}

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
        for (std::size_t i = 0; i < size_; ++i) logs[i] = static_cast<float>(logarithm(gathered_[i]));
        std::memcpy(writer_.next(size_), logs.data(), size_ * sizeof(float));
        size_ = 0;
    }

    SpillWriter writer_;
    std::size_t size_ = 0;
    std::array<double, kGathered> gathered_{};
};

constexpr std::uint32_t kNoRow = 0xFFFFFFFF;
constexpr std::uint64_t kNone = 0xFFFFFFFFFFFFFFFF;
constexpr std::uint64_t kNotLast = kNone / 2;  // occurrences counted from here are not the last of the text
constexpr std::size_t kAtOnce = 1 << 16;       // ids

// A word as the left neighbour of n-grams.
struct LeftWord {
    std::uint32_t last_row;  // the last row that this word preceded
    std::uint32_t times;     // number of occurrences
};

// What a thread knows.
struct Worker {
    UninitializedBuffer<std::uint32_t> stream, space;  // `space`: records to sort, or bucket buffers
    UninitializedBuffer<LeftWord> lefts;               // [word]
    std::vector<std::uint64_t> next_sizes;             // [range] records of the next order
    std::uint32_t row = 0;                             // number of rows counted by this thread
    std::array<std::uint64_t, 5> counts_of_counts{};
    ContextCounts behind;  // order 1 only: all words

    void count(std::uint64_t adjusted) {
        if (adjusted < counts_of_counts.size()) ++counts_of_counts[adjusted];
    }
    // Number of a new row for `last_row`.
    std::uint32_t next_row() {
        if (row == kNoRow) {
            for (LeftWord& left : lefts) left.last_row = kNoRow;
            row = 0;
        }
        return row++;
    }
};

// The external trainer: its files and tables, and the passes over them.

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
    template <class Work>
    void for_each(std::span<const std::uint64_t> sizes, const Work& work);
    template <class Work>
    void for_each_block(const Work& work);
    void scan_text();
    void distribute_text();
    void count_level(std::size_t n);
    void count_words(std::size_t range, Worker& worker);
    void count_rows(std::size_t n, std::size_t range, Worker& worker);
    void end_counting(std::size_t n);
    void estimate_level(std::size_t n);
    void estimate_unigrams(std::size_t part, Worker& worker, const ContextMass& mass);
    void estimate_part(std::size_t n, std::size_t part, Worker& worker);
    std::uint32_t record_left_words(const std::uint32_t* record, std::size_t n, std::uint32_t row,
                                    std::uint64_t occurrence, Worker& worker, SpillWriter& into);
    void distribute(SpillReader& lefts, std::uint64_t& occurrence, std::size_t n, std::uint64_t row,
                    const CountedRow& result, double p, BucketWriter& into) const;
    std::uint64_t follower_count(const CountedRow& context, std::uint64_t row, std::size_t n) const;
    void read_range(std::size_t range, Worker& worker, const UseRecords& use) const {
        read_sorted(*records_, ranges_, range, {times_.data(), times_.size()},
                    {worker.space.data(), budget_.sorted}, options_.records,
                    {worker.stream.data(), worker.stream.size()}, use);
    }

    const IdSource& ids_;
    const TextMetadata text_;
    const ExternalOptions& options_;
    std::vector<std::uint32_t> cut_offs_;
    std::shared_ptr<const SpillFolder> folder_;
    std::uint64_t tokens_ = 0;
    std::size_t writers_ = 1;
    std::size_t done_ = 0;
    Budget budget_{};
    std::vector<Worker> workers_;

    WordRanges ranges_;
    std::unique_ptr<BucketFile> records_;       // of the order to be counted next
    std::optional<RecordCounts> next_sizes_;    // of the order above, by part and range
    UninitializedBuffer<std::uint32_t> times_;  // occurrences of the order to be counted by first word
    std::unique_ptr<CountedLevel> level_, below_;
    std::uint64_t begins_from_ = 0, begins_to_ = 0;  // rows that begin with <s>, in the range of <s>
    std::uint64_t begins_ = 0;                       // occurrences of bigrams that begin with <s>
    // Stream only: the last n-gram of the text.
    std::size_t last_range_ = 0;
    std::uint64_t last_row_ = kNone, last_row_below_ = kNone;  // its row, in the range and in all
    std::uint64_t last_occurrence_ = kNone;  // its place among those with words to their left, if it has any
    std::vector<SpilledLevel> levels_;
    std::vector<Discounts> discounts_;
};

// Calls work(i, worker) for all i of `sizes` in parallel, the largest first.
template <class Work>
void ExternalTrainer::for_each(std::span<const std::uint64_t> sizes, const Work& work) {
    std::vector<std::uint32_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return sizes[a] > sizes[b]; });
    std::atomic<std::size_t> next{0};
    std::atomic<bool> is_stopped{false};
    parallel_for(std::min(workers_.size(), std::max<std::size_t>(order.size(), 1)), [&](std::size_t t) {
        try {
            for (std::size_t i; !is_stopped && (i = next.fetch_add(1)) < order.size();) {
                if (t == 0 && options_.check_interrupt) options_.check_interrupt();
                work(order[i], workers_[t]);
            }
        } catch (...) {
            is_stopped = true;
            throw;
        }
    });
}

// Calls work(from, ids, worker) for blocks of the text in parallel.
template <class Work>
void ExternalTrainer::for_each_block(const Work& work) {
    std::vector<std::uint64_t> sizes((tokens_ + kAtOnce - 1) / kAtOnce, kAtOnce);
    std::vector<UninitializedBuffer<std::int32_t>> buffers(workers_.size());
    for_each(sizes, [&](std::size_t block, Worker& worker) {
        const std::uint64_t from = std::uint64_t{block} * kAtOnce;
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kAtOnce, tokens_ - from));
        const auto t = static_cast<std::size_t>(&worker - workers_.data());
        work(from, ids_.read(from, count, buffers[t]), worker);
    });
}

// Records the left words of an occurrence; returns 1 if the nearest one is new for its row.
std::uint32_t ExternalTrainer::record_left_words(const std::uint32_t* record, std::size_t n,
                                                 std::uint32_t row, std::uint64_t occurrence, Worker& worker,
                                                 SpillWriter& into) {
    const std::size_t count = lefts(n);
    std::uint32_t* const to = into.next(count);
    for (std::size_t i = 0; i < count; ++i) to[i] = record[1 + i];
    const std::uint32_t word = record[1];
    if (record[0] & kMark) last_occurrence_ = occurrence;
    ++worker.next_sizes[ranges_.of(word)];
    LeftWord& left = worker.lefts[word];
    ++left.times;
    return std::exchange(left.last_row, row) != row;
}

// Passes the occurrences of a row on to the next order, keyed by the word to their left.
void ExternalTrainer::distribute(SpillReader& left_words, std::uint64_t& occurrence, std::size_t n,
                                 std::uint64_t row, const CountedRow& result, double p,
                                 BucketWriter& into) const {
    const std::size_t count = lefts(n);
    for (std::uint64_t i = 0; i < result.count; ++i, ++occurrence) {
        const std::uint32_t* const words = left_words.next(count);
        std::uint32_t* const record = into.next(ranges_.of(words[0]));
        for (std::size_t k = 0; k < count; ++k) record[k] = words[k];
        if (occurrence == last_occurrence_) record[0] |= kMark;
        record[count] = static_cast<std::uint32_t>(row);
        record[count + 1] = result.word;
        std::memcpy(record + count + 2, &p, sizeof p);
    }
}

ExternalTrainer::ExternalTrainer(const IdSource& ids, const TextMetadata& text,
                                 const ExternalOptions& options)
    : ids_(ids), text_(text), options_(options), cut_offs_(check_cut_offs(options.cut_offs, options.order)) {
    if (text.begin >= text.vocabulary || text.end >= text.vocabulary || text.begin == text.end)
        throw ArgumentError("<s> and </s> must have different ids below the vocabulary size");
    trim_heap();
    const std::uint64_t in_use = memory_in_use();
    tokens_ = ids.size();
    const TrainingSize size{tokens_, text.vocabulary, options.order, options.is_small, options.is_quantized};
    budget_ = plan_memory(options.memory, in_use, size, options.threads);
    writers_ = writer_threads_within(options.memory, in_use, size, options.threads);
    folder_ = std::make_shared<SpillFolder>(SpillFolder{options.folder, disk_required(size)});
    workers_.resize(budget_.threads);
    for (Worker& worker : workers_) {
        worker.stream = UninitializedBuffer<std::uint32_t>(budget_.stream);
        worker.space =
            UninitializedBuffer<std::uint32_t>(std::max(budget_.sorted, budget_.buckets), Access::scattered);
        worker.lefts = UninitializedBuffer<LeftWord>(text.vocabulary, Access::scattered);
    }
    times_ = UninitializedBuffer<std::uint32_t>(text.vocabulary);
}

ExternalModel ExternalTrainer::run() {
    scan_text();
    distribute_text();
    report();
    for (std::size_t n = 1; n <= options_.order; ++n) {
        levels_.emplace_back();
        count_level(n);
        end_counting(n);
        report();
        estimate_level(n);
        report();
    }
    return {std::make_unique<SpilledRows>(std::move(levels_)), std::move(discounts_), writers_};
}

// Validates the ids, counts words and divides them into ranges.
void ExternalTrainer::scan_text() {
    for (Worker& worker : workers_) std::fill(worker.lefts.begin(), worker.lefts.end(), LeftWord{0, 0});
    for_each_block([&](std::uint64_t, std::span<const std::int32_t> ids, Worker& worker) {
        for (const std::int32_t id : ids) {
            const auto word = static_cast<std::uint32_t>(id);
            if (word >= text_.vocabulary)
                throw ArgumentError("the text contains the id " + std::to_string(id) +
                                    "; ids must be below the vocabulary size, " +
                                    std::to_string(text_.vocabulary));
            if (word == text_.begin)
                throw ArgumentError(
                    "the text contains the id of <s>, which is added to each line automatically; remove it");
            LeftWord& count = worker.lefts[word];
            if (++count.times == 0) ++count.last_row;  // the upper half of the count
        }
    });
    UninitializedBuffer<std::int32_t> buffer(1);
    if (!text_.is_stream && tokens_ > 0 &&
        ids_.read(tokens_ - 1, 1, buffer)[0] != static_cast<std::int32_t>(text_.end))
        throw ArgumentError("the last line of the text does not end with </s>");
    std::vector<std::uint64_t> times(text_.vocabulary, 0);
    for (const Worker& worker : workers_)
        for (std::uint32_t w = 0; w < text_.vocabulary; ++w)
            times[w] += (std::uint64_t{worker.lefts[w].last_row} << 32) + worker.lefts[w].times;
    for (std::uint32_t w = 0; w < text_.vocabulary; ++w)
        times_[w] = static_cast<std::uint32_t>(std::min<std::uint64_t>(times[w], kNoRow));
    // A token begins at most one n-gram of each order, and <s> one in each line.
    times[text_.begin] = text_.is_stream ? 1 : times[text_.end];
    std::uint64_t most = std::max<std::uint64_t>(budget_.sorted / (options_.order + kTail - 1), 1);
    if (options_.records > 0) most = std::min<std::uint64_t>(most, options_.records);
    ranges_ = WordRanges(times, most, workers_.size() == 1 ? 1 : 8 * workers_.size());
    times[text_.begin] = 0;
    RecordCounts counts(1, ranges_.size());
    for (std::size_t r = 0; r < ranges_.size(); ++r)
        for (std::uint32_t w = ranges_.begin(r); w < ranges_.end(r); ++w) counts.of(0, r) += times[w];
    records_ = std::make_unique<BucketFile>(folder_, options_.order, std::move(counts));
}

// Distributes every token, with its left words, to the ranges. The order of the occurrences of a word does
// not matter.
void ExternalTrainer::distribute_text() {
    const std::size_t width = options_.order;
    std::vector<std::optional<BucketWriter>> writers(workers_.size());
    for (std::size_t t = 0; t < workers_.size(); ++t) {
        writers[t].emplace(*records_, 0,
                           std::span<std::uint32_t>(workers_[t].space.data(), workers_[t].space.size()));
    }
    for_each_block([&](std::uint64_t from, std::span<const std::int32_t> ids, Worker& worker) {
        BucketWriter& writer = *writers[static_cast<std::size_t>(&worker - workers_.data())];
        std::vector<std::uint32_t> before(width, text_.begin);  // preceding words, nearest first
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(from, width - 1));
        UninitializedBuffer<std::int32_t> buffer(count);
        const std::span<const std::int32_t> preceding = ids_.read(from - count, count, buffer);
        for (std::size_t i = 0; i < count; ++i)
            before[count - 1 - i] = static_cast<std::uint32_t>(preceding[i]);
        // Words to the left of <s> are never used.
        if (!text_.is_stream) std::replace(before.begin(), before.end(), text_.end, text_.begin);
        for (std::size_t i = 0; i < ids.size(); ++i) {
            const auto word = static_cast<std::uint32_t>(ids[i]);
            std::uint32_t* const record = writer.next(ranges_.of(word));
            std::copy_n(before.begin(), width - 1, record + 1);
            record[0] = text_.is_stream && from + i + 1 == tokens_ ? word | kMark : word;
            for (std::size_t k = width - 1; k > 0; --k) before[k] = before[k - 1];
            before[0] = !text_.is_stream && word == text_.end ? text_.begin : word;
        }
    });
    for (std::optional<BucketWriter>& writer : writers) writer->finish();
}

void ExternalTrainer::count_level(std::size_t n) {
    const std::size_t ranges = ranges_.size();
    below_ = std::move(level_);
    level_ = std::make_unique<CountedLevel>(ranges, options_.max_count);
    level_->rows = new_file();
    if (n < options_.order) level_->lefts = new_file();
    last_row_below_ = std::exchange(last_row_, kNone);
    last_occurrence_ = kNone;
    next_sizes_.emplace(ranges_.parts(), ranges);
    std::vector<std::uint64_t> sizes(ranges);
    for (std::size_t r = 0; r < ranges; ++r) sizes[r] = records_->size(r);
    for (Worker& worker : workers_) {
        worker.next_sizes.assign(ranges, 0);
        worker.counts_of_counts = {};
        worker.row = 0;
        std::fill(worker.lefts.begin(), worker.lefts.end(), LeftWord{kNoRow, 0});
    }
    std::mutex mutex;
    for_each(sizes, [&](std::size_t range, Worker& worker) {
        if (n == 1)
            count_words(range, worker);
        else
            count_rows(n, range, worker);
        records_->release(range);
        const std::lock_guard<std::mutex> lock(mutex);
        for (std::size_t r = 0; r < ranges; ++r)
            next_sizes_->of(ranges_.part_of(range), r) += std::exchange(worker.next_sizes[r], 0);
    });
}

// Order 1: every word has a row.
void ExternalTrainer::count_words(std::size_t range, Worker& worker) {
    const bool is_top = options_.order == 1;
    const std::uint32_t from = ranges_.begin(range), to = ranges_.end(range);
    SpillWriter rows(level_->rows, budget_.stream, std::uint64_t{from} * CountedRow::kWidth),
        left_words(level_ -> lefts, budget_.stream, records_->begin(range) * lefts(1));
    std::uint64_t& occurrences = level_->occurrences[range];
    std::uint32_t next = from, number = 0;
    CountedRow row;
    const auto finish = [&](std::uint32_t end) {  // words that do not occur also have a row
        for (; next < end; ++next) {
            row.word = next;
            if (is_top) row.adjusted = row.count;
            level_->large.write(rows, range, next - from, row);
            worker.count(row.adjusted);
            worker.behind.keep(row.adjusted);
            row.count = row.adjusted = 0;
        }
        number = worker.next_row();
    };
    read_range(range, worker, [&](std::uint32_t word, const std::uint32_t* record, std::size_t count) {
        if (word > next || row.count == 0) finish(word);
        row.count += count;
        for (std::size_t i = 0; i < count; ++i, record += options_.order) {
            if (record[0] & kMark) {
                last_row_ = word - from;
                last_range_ = range;
            }
            if (!is_top)
                row.adjusted += record_left_words(record, 1, number, occurrences++, worker, left_words);
        }
    });
    finish(to);
    level_->sizes[range] = level_->kept_sizes[range] = to - from;
    rows.flush();
    left_words.flush();
}

void ExternalTrainer::count_rows(std::size_t n, std::size_t range, Worker& worker) {
    const bool is_top = n == options_.order;
    const std::size_t width = 1 + lefts(n) + kTail;
    const std::uint64_t place = records_->begin(range);
    SpillWriter rows(level_->rows, budget_.stream, place * CountedRow::kWidth),
        left_words(level_->lefts, budget_.stream, place * lefts(n));
    std::uint64_t &size = level_->sizes[range], &occurrences = level_->occurrences[range];
    CountedRow row;
    std::uint32_t number = 0, suffix = kNoRow, first_word = kNoRow;  // of the current row
    std::uint64_t different = 0, begins_from = 0;                    // distinct words to its left
    const auto finish = [&] {
        if (first_word == kNoRow) return;
        row.adjusted = is_top || first_word == text_.begin ? row.count : different;
        worker.count(row.adjusted);
        level_->large.write(rows, range, size, row);
        ++size;
        level_->kept_sizes[range] += row.count > cut_offs_[n - 1];
    };
    const auto use = [&](std::uint32_t word, const std::uint32_t* record, std::size_t count) {
        const bool begins = word == text_.begin;
        for (std::size_t i = 0; i < count; ++i, record += width) {
            const std::uint32_t* const tail = record + 1 + lefts(n);
            if (word != first_word || tail[0] != suffix) {
                finish();
                if (word != first_word && begins) begins_from = size;
                number = worker.next_row();
                first_word = word;
                suffix = tail[0];
                row = {tail[1], 0, 0, 0};
                std::memcpy(&row.shorter, tail + 2, sizeof row.shorter);
                different = 0;
            }
            ++row.count;
            if (record[0] & kMark) {
                last_row_ = size;
                last_range_ = range;
            }
            if (!is_top && !begins)
                different += record_left_words(record, n, number, occurrences++, worker, left_words);
        }
        if (!begins) return;
        if (n == 2) begins_ += count;
        begins_from_ = begins_from;
        begins_to_ = size + 1;
    };
    if (range == ranges_.of(text_.begin)) begins_from_ = begins_to_ = 0;
    read_range(range, worker, use);
    finish();
    rows.flush();
    left_words.flush();
}

// Numbers the rows over all ranges, and estimates the discounts.
void ExternalTrainer::end_counting(std::size_t n) {
    const auto add_up = [](std::vector<std::uint64_t>& sizes) {
        sizes.push_back(0);
        std::exclusive_scan(sizes.begin(), sizes.end(), sizes.begin(), std::uint64_t{0});
    };
    level_->places.resize(ranges_.size());
    for (std::size_t r = 0; r < ranges_.size(); ++r)
        level_->places[r] = n == 1 ? ranges_.begin(r) : records_->begin(r);
    level_->left_places.resize(ranges_.size());
    for (std::size_t r = 0; r < ranges_.size(); ++r) level_->left_places[r] = records_->begin(r);
    add_up(level_->sizes);
    add_up(level_->kept_sizes);
    if (last_row_ != kNone) last_row_ += level_->sizes[last_range_];
    if (level_->sizes.back() > options_.max_rows)
        throw ArgumentError("the text has " + std::to_string(level_->sizes.back()) +
                            " different n-grams of order " + std::to_string(n) + ", more than the " +
                            std::to_string(options_.max_rows) +
                            " of a model file; train on a part of the text, or with a lower order");
    std::array<std::uint64_t, 5> counts{};
    for (const Worker& worker : workers_)
        for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += worker.counts_of_counts[i];
    discounts_.push_back(modified_discounts(counts));
    records_.reset();
    if (n == options_.order) return;
    records_ = std::make_unique<BucketFile>(folder_, lefts(n) + kTail, std::move(*next_sizes_));
    for (std::uint32_t w = 0; w < text_.vocabulary; ++w) {
        times_[w] = 0;
        for (const Worker& worker : workers_) times_[w] += worker.lefts[w].times;
    }
}

void ExternalTrainer::estimate_level(std::size_t n) {
    SpilledLevel& level = levels_.back();
    level = {new_file(), new_file(), {}, {}, level_->kept_sizes.back()};
    ContextMass mass{1.0, 1.0};
    if (n == 1) {
        ContextCounts behind;
        for (const Worker& worker : workers_) behind.merge(worker.behind);
        mass = behind.mass(discounts_.back().of);
    } else {
        levels_[n - 2].log_backoff = new_file();
        levels_[n - 2].first = new_file();
    }
    std::vector<std::uint64_t> sizes(ranges_.parts(), 0);
    for (std::size_t p = 0; p < sizes.size(); ++p)
        for (std::size_t r = ranges_.part_begin(p); r < ranges_.part_end(p); ++r)
            sizes[p] += level_->occurrences[r] + level_->sizes[r + 1] - level_->sizes[r];
    for_each(sizes, [&](std::size_t part, Worker& worker) {
        if (n == 1)
            estimate_unigrams(part, worker, mass);
        else
            estimate_part(n, part, worker);
    });
    if (n == 1) return;
    const auto end = static_cast<std::uint32_t>(level.size);
    levels_[n - 2].first.write(levels_[n - 2].size, &end, 1);
}

// Order 1, interpolated with the uniform distribution over predictable words.
void ExternalTrainer::estimate_unigrams(std::size_t part, Worker& worker, const ContextMass& mass) {
    const DiscountRow& D = discounts_.back().of;
    const std::size_t first = ranges_.part_begin(part);
    const std::uint32_t V = text_.vocabulary;
    const double uniform = 1.0 / static_cast<double>(V - 1 - (options_.unknown < V));
    SpillReader rows(level_->rows, budget_.stream), left_words(level_->lefts, budget_.stream);
    SpillWriter words(levels_.back().word, budget_.stream, ranges_.begin(first));
    LogWriter logs(levels_.back().log_prob, budget_.stream, ranges_.begin(first));
    std::optional<BucketWriter> records;
    if (options_.order > 1)
        records.emplace(*records_, part, std::span<std::uint32_t>(worker.space.data(), worker.space.size()));
    for (std::size_t range = first; range < ranges_.part_end(part); ++range) {
        const std::uint32_t from = ranges_.begin(range), to = ranges_.end(range);
        const std::uint64_t place = level_->left_places[range];
        rows.restart(std::uint64_t{from} * CountedRow::kWidth, std::uint64_t{to} * CountedRow::kWidth);
        left_words.restart(place * lefts(1), (place + level_->occurrences[range]) * lefts(1));
        std::uint64_t occurrence = last_range_ == range ? 0 : kNotLast;
        for (std::uint32_t w = from; w < to; ++w) {
            const CountedRow row = level_->large.read(rows, range, w - from);
            const bool is_predictable = w != text_.begin && w != options_.unknown;
            const double p =
                discounted_share(row.adjusted, D, mass.total) + (is_predictable ? mass.gamma * uniform : 0.0);
            words.push(w);
            logs.push(p);
            if (records) distribute(left_words, occurrence, 1, w, row, p, *records);
        }
        level_->lefts.release(place * lefts(1), level_->occurrences[range] * lefts(1));
    }
    words.flush();
    logs.flush();
    if (records) records->finish();
}

// Number of occurrences of n-grams whose context is this row of the order below.
std::uint64_t ExternalTrainer::follower_count(const CountedRow& context, std::uint64_t row,
                                              std::size_t n) const {
    if (n == 2 && context.word == text_.begin) return begins_;
    if (!text_.is_stream && context.word == text_.end) return 0;
    return context.count - (row == last_row_below_);
}

void ExternalTrainer::estimate_part(std::size_t n, std::size_t part, Worker& worker) {
    const DiscountRow& D = discounts_.back().of;
    const bool is_top = n == options_.order;
    const std::uint32_t cut_off = cut_offs_[n - 1], cut_off_below = n > 2 ? cut_offs_[n - 2] : 0;
    SpilledLevel &level = levels_.back(), &below = levels_[n - 2];
    const std::size_t buffered = budget_.stream, first = ranges_.part_begin(part);
    SpillReader contexts(below_->rows, buffered), counting(level_->rows, buffered),
        rows(level_->rows, buffered), left_words(level_->lefts, buffered);
    std::uint64_t kept_rows = level_->kept_sizes[first];
    SpillWriter words(level.word, buffered, kept_rows),
        firsts(below.first, buffered, below_->kept_sizes[first]);
    LogWriter logs(level.log_prob, buffered, kept_rows),
        backoffs(below.log_backoff, buffered, below_->kept_sizes[first]);
    std::optional<BucketWriter> records;
    if (!is_top)
        records.emplace(*records_, part, std::span<std::uint32_t>(worker.space.data(), worker.space.size()));
    for (std::size_t range = first; range < ranges_.part_end(part); ++range) {
        const std::uint64_t place = level_->places[range], place_below = below_->places[range];
        const std::uint64_t size = level_->size(range), size_below = below_->size(range);
        constexpr std::uint64_t kWidth = CountedRow::kWidth;
        contexts.restart(place_below * kWidth, (place_below + size_below) * kWidth);
        counting.restart(place * kWidth, (place + size) * kWidth);
        rows.restart(place * kWidth, (place + size) * kWidth);
        left_words.restart(place * lefts(n), (place + level_->occurrences[range]) * lefts(n));
        const bool has_begins = range == ranges_.of(text_.begin);
        std::uint64_t occurrence = last_range_ == range ? 0 : kNotLast;
        std::uint64_t counted = 0, number = 0;  // rows of the two readers
        for (std::uint64_t h = 0; h < size_below; ++h) {
            const CountedRow context = below_->large.read(contexts, range, h);
            const bool is_kept = n == 2 || context.count > cut_off_below;
            if (is_kept) firsts.push(static_cast<std::uint32_t>(kept_rows));
            const std::uint64_t occurrences = follower_count(context, below_->sizes[range] + h, n);
            ContextCounts behind;
            for (std::uint64_t at = 0; at < occurrences; ++counted) {
                const CountedRow row = level_->large.read(counting, range, counted);
                at += row.count;
                if (row.count > cut_off)
                    behind.keep(row.adjusted);
                else
                    behind.add_pruned(row.adjusted);
            }
            const ContextMass mass = behind.mass(D);
            if (is_kept) backoffs.push(mass.gamma);
            for (; number < counted; ++number) {
                const CountedRow row = level_->large.read(rows, range, number);
                double p = 0;  // unused for pruned n-grams: longer n-grams with this suffix are pruned too
                if (row.count > cut_off) {
                    p = discounted_share(row.adjusted, D, mass.total) + mass.gamma * row.shorter;
                    words.push(row.word);
                    logs.push(p);
                    ++kept_rows;
                }
                const bool begins = has_begins && number >= begins_from_ && number < begins_to_;
                if (!is_top && !begins)
                    distribute(left_words, occurrence, n, level_->sizes[range] + number, row, p, *records);
            }
        }
        below_->rows.release(place_below * kWidth, size_below * kWidth);
        if (is_top)
            level_->rows.release(place * kWidth, size * kWidth);
        else
            level_->lefts.release(place * lefts(n), level_->occurrences[range] * lefts(n));
    }
    words.flush();
    firsts.flush();
    logs.flush();
    backoffs.flush();
    if (records) records->finish();
}

}  // namespace

IdFile::IdFile(const std::string& path) : file_(path) {
    static_assert(std::endian::native == std::endian::little);
    if (file_.size() % sizeof(std::int32_t) != 0)
        throw IoError(path + " is truncated: its size is not a multiple of 4 bytes; create it again");
}

std::span<const std::int32_t> IdFile::read(std::uint64_t from, std::size_t count,
                                           UninitializedBuffer<std::int32_t>& buffer) const {
    if (buffer.size() < count) buffer = UninitializedBuffer<std::int32_t>(count);
    file_.read(from * sizeof(std::int32_t), reinterpret_cast<char*>(buffer.data()),
               count * sizeof(std::int32_t));
    return {buffer.data(), count};
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
