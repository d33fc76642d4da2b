#include "vectors/cooccurrence.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <exception>
#include <numeric>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "vectors/corpus.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kFirst = 1 << 14;  // initial number of slots

int shift_of(std::size_t slots) { return 64 - std::countr_zero(slots); }

std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
    if (a > ~b)
        throw Error("the co-occurrences of two words exceed 64 bits; use a window of at most 22 words");
    return a + b;
}

// Slot of this key or the free slot for it; the end if there is none.
std::size_t find(const std::vector<Entry>& slots, std::uint64_t key, int shift) {
    std::size_t slot = key >> shift;
    while (slot < slots.size() && slots[slot].amount && slots[slot].key != key) ++slot;
    return slot;
}

}  // namespace

PairTable::PairTable(std::size_t most_slots) : most_(std::bit_floor(std::max(most_slots, kMin))) {
    const std::size_t slots = std::min(most_, kFirst);
    shift_ = shift_of(slots);
    slots_.resize(slots + kTail);
}

bool PairTable::add(std::uint64_t key, std::uint64_t amount) {
    while (true) {
        const std::size_t slot = find(slots_, key, shift_);
        if (slot < slots_.size()) {
            Entry& entry = slots_[slot];
            if (entry.amount) {
                entry.amount = sum(entry.amount, amount);
                return true;
            }
            if (used_ < (slots_.size() - kTail) / 8 * 5) {
                entry = {key, amount};
                ++used_;
                return true;
            }
        }
        if (!grow()) return false;
    }
}

bool PairTable::grow() {
    const std::size_t slots = (slots_.size() - kTail) * 2;
    if (slots > most_) return false;
    std::vector<Entry> wider(slots + kTail);
    const int shift = shift_of(slots);
    for (const Entry& entry : slots_) {
        if (!entry.amount) continue;
        const std::size_t slot = find(wider, entry.key, shift);
        if (slot == wider.size()) return false;
        wider[slot] = entry;
    }
    slots_.swap(wider);
    shift_ = shift;
    return true;
}

std::span<const Entry> PairTable::sorted() {
    std::size_t n = 0;
    for (const Entry& entry : slots_) {
        if (!entry.amount) continue;
        const Entry moved = entry;
        std::size_t at = n++;  // entries are at most a few slots out of order
        for (; at > 0 && slots_[at - 1].key > moved.key; --at) slots_[at] = slots_[at - 1];
        slots_[at] = moved;
    }
    return {slots_.data(), n};
}

void PairTable::clear() {
    std::fill(slots_.begin(), slots_.end(), Entry{0, 0});
    used_ = 0;
}

namespace {

constexpr std::size_t kMin = 64, kMax = 1 << 15;  // entries of a run in memory

}  // namespace

bool PairRun::fill(std::size_t size) {
    if (at_ < entries_.size()) return true;
    if (!in_ || first_ == last_) return false;
    block_.resize(std::min<std::uint64_t>(size, last_ - first_));
    in_->clear();
    in_->seekg(static_cast<std::streamoff>(first_ * sizeof(Entry)));
    in_->read(reinterpret_cast<char*>(block_.data()),
              static_cast<std::streamsize>(block_.size() * sizeof(Entry)));
    if (!*in_) throw IoError("a temporary file of co-occurrence counts cannot be read back");
    first_ += block_.size();
    entries_ = block_;
    at_ = 0;
    return true;
}

PairMerge::PairMerge(std::vector<PairRun> runs, std::uint64_t bytes) : runs_(std::move(runs)) {
    if (runs_.empty()) return;
    size_ = std::clamp<std::size_t>(bytes / runs_.size() / sizeof(Entry), kMin, kMax);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
        of_ += runs_[i].size();
        if (runs_[i].fill(size_)) heap_.push_back({runs_[i].front().key, i});
    }
    std::make_heap(heap_.begin(), heap_.end());
}

bool PairMerge::next(Entry& merged) {
    if (heap_.empty()) return false;
    merged = take();
    while (!heap_.empty() && heap_.front().key == merged.key)
        merged.amount = sum(merged.amount, take().amount);
    return true;
}

// Removes the least entry; the new head sinks from the top of the heap instead of a pop and a push.
Entry PairMerge::take() {
    const std::size_t i = heap_.front().run;
    PairRun& run = runs_[i];
    const Entry merged = run.front();
    run.step();
    ++done_;
    if (!run.fill(size_)) {
        std::pop_heap(heap_.begin(), heap_.end());
        heap_.pop_back();
        return merged;
    }
    const Head head{run.front().key, i};
    std::size_t at = 0;
    while (true) {
        std::size_t child = 2 * at + 1;
        if (child >= heap_.size()) break;
        if (child + 1 < heap_.size() && heap_[child + 1].key < heap_[child].key) ++child;
        if (head.key <= heap_[child].key) break;
        heap_[at] = heap_[child];
        at = child;
    }
    heap_[at] = head;
    return merged;
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBlock = 1 << 15;    // ids read, or pairs merged, at a time
constexpr std::size_t kRecords = 1 << 15;  // records written at a time
constexpr std::size_t kPart = 4 << 20;     // bytes of a part of the counts of a range
constexpr std::uint64_t kMostRanges = 1 << 24;
constexpr std::size_t kExact = 22;  // lcm(1 … 22) < 2^32

// 1 / d in whole parts of a unit that all distances divide, or for wide windows in parts of 2^-32.
std::uint64_t unit_of(std::size_t window) {
    if (window > kExact) return 1ULL << 32;
    std::uint64_t unit = 1;
    for (std::uint64_t d = 2; d <= window; ++d) unit = std::lcm(unit, d);
    return unit;
}

std::uint64_t pair_of(std::uint32_t low, std::uint32_t high) {
    return static_cast<std::uint64_t>(low) << 32 | high;
}

std::uint64_t offset_of(std::uint64_t seed) { return seed * 0x9E3779B97F4A7C15ULL; }

std::size_t slots_of(std::uint64_t bytes) {
    return bytes * 2 / 3 / sizeof(Entry);  // both the old and the new table exist while growing
}

}  // namespace

TemporaryFile::~TemporaryFile() {
    std::error_code ignored;
    if (!is_kept_) std::filesystem::remove(path_, ignored);
}

void SortedRunFile::write(std::span<const Entry> run) {
    if (!out_.is_open()) out_.open(path_.path(), std::ios::binary | std::ios::trunc);
    out_.write(reinterpret_cast<const char*>(run.data()), static_cast<std::streamsize>(run.size_bytes()));
    out_.flush();
    if (!out_) throw IoError(path_.path().string() + " cannot be written to its end; is the disk full?");
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + run.size());
}

void SortedRunFile::add_to(std::vector<PairRun>& runs) {
    if (ends_.empty()) return;
    out_.close();
    in_.open(path_.path(), std::ios::binary);
    std::uint64_t first = 0;
    for (const std::uint64_t end : ends_) {
        runs.emplace_back(in_, first, end);
        first = end;
    }
}

void SpillingPairTable::add(std::uint64_t key, std::uint64_t amount) {
    table_.prefetch(key);
    std::swap(waiting_[oldest_].key, key);
    std::swap(waiting_[oldest_].amount, amount);
    oldest_ = (oldest_ + 1) % kAhead;
    if (amount) add_now(key, amount);
}

void SpillingPairTable::add_now(std::uint64_t key, std::uint64_t amount) {
    if (table_.add(key, amount)) return;
    file_.write(table_.sorted());
    table_.clear();
    table_.add(key, amount);
}

void SpillingPairTable::add_to(std::vector<PairRun>& runs) {
    for (Entry& entry : waiting_) {
        if (entry.amount) add_now(entry.key, entry.amount);
        entry.amount = 0;
    }
    runs.emplace_back(table_.sorted());
    file_.add_to(runs);
}

PairWriter::PairWriter(const std::string& out) : path_(out), out_(out, std::ios::binary | std::ios::trunc) {
    if (!out_) throw IoError(out + " cannot be written");
}

void PairWriter::write(const void* bytes, std::size_t size) {
    out_.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
    if (!out_) throw IoError(path_.path().string() + " cannot be written to its end; is the disk full?");
}

void PairWriter::finish() {
    out_.close();
    if (!out_) throw IoError(path_.path().string() + " cannot be written to its end; is the disk full?");
    path_.keep();
}

RecordWriter::RecordWriter(const CooccurrenceConfig& config, const std::string& out)
    : PairWriter(out), offset_(offset_of(config.seed)), unit_(static_cast<double>(unit_of(config.window))) {
    buffer_.reserve(kRecords);
}

// Both directions of a pair; for a word next to itself they coincide.
void RecordWriter::add(const Entry& entry) {
    const std::uint64_t pair = unmixed(entry.key, offset_);
    const auto i = static_cast<std::int32_t>(pair >> 32), j = static_cast<std::int32_t>(pair & 0xFFFFFFFFU);
    const std::uint64_t amount = i == j ? sum(entry.amount, entry.amount) : entry.amount;
    const auto x = static_cast<float>(static_cast<double>(amount) / unit_);
    buffer_.push_back({i, j, x});
    if (i != j) buffer_.push_back({j, i, x});
    records_ += i == j ? 1 : 2;
    if (buffer_.size() + 2 > kRecords) flush();
}

void RecordWriter::flush() {
    write(buffer_.data(), buffer_.size() * sizeof(Record));
    buffer_.clear();
}

void RecordWriter::finish() {
    flush();
    PairWriter::finish();
}

void RangeWriter::add(const Entry& entry) {
    const auto range = static_cast<std::uint32_t>((entry.key >> 32) * ranges_ >> 32);
    if (range != range_ || bytes_.size() >= kPart) flush();
    range_ = range;
    bytes_.varint(entry.key - last_);
    bytes_.varint(entry.amount);
    last_ = entry.key;
}

void RangeWriter::flush() {
    if (!bytes_.size()) return;
    write(bytes_.view().data(), bytes_.size());
    parts_.emplace_back(range_, bytes_.size());
    bytes_ = {};
    last_ = 0;
}

void RangeWriter::finish() {
    flush();
    PairWriter::finish();
}

CooccurrenceSum::CooccurrenceSum(const CooccurrenceConfig& config, const std::string& out)
    : config_(config), file_(out + ".runs"), writer_(config, out) {}

void CooccurrenceSum::add(std::string_view counts) {
    ByteReader in(counts);
    std::vector<Entry> entries;
    for (std::uint64_t key = 0; !in.is_at_end();) {
        key += in.varint();
        entries.push_back({key, in.varint()});
    }
    if ((entries_ + entries.size()) * sizeof(Entry) > config_.bytes / 2) {
        file_.write(entries);
        return;
    }
    entries.shrink_to_fit();
    entries_ += entries.size();
    parts_.push_back(std::move(entries));
}

std::uint64_t CooccurrenceSum::finish() {
    std::vector<PairRun> runs;
    for (const std::vector<Entry>& entries : parts_) runs.emplace_back(std::span<const Entry>(entries));
    file_.add_to(runs);
    PairMerge merge(std::move(runs), config_.bytes / 4);
    for (Entry entry; merge.next(entry);) writer_.add(entry);
    writer_.finish();
    return writer_.records();
}

// Per-thread state between calls of `run`.
struct Cooccurrence::Worker {
    Worker(const std::string& file, std::size_t slots, const std::filesystem::path& runs)
        : numbers(file), table(slots, runs) {}

    WordIdFile numbers;
    std::uint64_t at = 0, last = 0;  // next index of the file, and the end of the worker's part
    bool is_within = false;          // the first sentence of its part has begun
    bool is_finished = false;
    std::vector<std::int32_t> block;
    std::vector<std::uint32_t> recent;  // words of the sentence, at least the last `window`
    std::vector<std::uint64_t> cells;
    SpillingPairTable table;
    std::exception_ptr error;
};

Cooccurrence::Cooccurrence(const CooccurrenceConfig& config, const std::string& file, std::uint64_t numbers,
                           std::span<const std::int32_t> number_of, std::size_t words, const std::string& out)
    : config_(config),
      file_(file),
      numbers_(numbers),
      number_of_(number_of.begin(), number_of.end()),
      rows_(words) {
    if (config.window == 0 || config.threads == 0)
        throw ArgumentError("window and threads must be at least 1");
    constexpr std::size_t most = 1 << 16;
    if (config.window > most || config.threads > most)
        throw ArgumentError("window and threads must be at most 65536");
    if (config.ranges > kMostRanges) throw ArgumentError("ranges must be at most 2^24");
    for (const std::int32_t number : number_of_) {
        if (number >= 0 && static_cast<std::size_t>(number) >= words) {
            throw ArgumentError("a word has the id " + std::to_string(number) + "; ids must be below " +
                                std::to_string(words));
        }
    }
    const std::uint64_t unit = unit_of(config.window);
    for (std::uint64_t d = 1; d <= config.window; ++d) shares_.push_back((unit + d / 2) / d);
    const std::uint64_t bytes = config.bytes / config.threads;
    choose_cells(bytes / 2 / sizeof(std::uint64_t));
    for (std::size_t i = 0; i < config.threads; ++i) {
        auto worker = std::make_unique<Worker>(file, slots_of(bytes / 2), out + ".runs" + std::to_string(i));
        worker->at = numbers * i / config.threads;
        worker->last = numbers * (i + 1) / config.threads;
        worker->is_within = worker->at == 0;
        worker->is_finished = worker->at == worker->last;
        if (worker->at > 0) --worker->at;  // checks whether the preceding id ends a sentence
        if (!worker->is_finished) worker->cells.resize(cells_);
        workers_.push_back(std::move(worker));
    }
    if (config.ranges)
        writer_ = std::make_unique<RangeWriter>(config.ranges, out);
    else
        writer_ = std::make_unique<RecordWriter>(config, out);
}

Cooccurrence::~Cooccurrence() = default;

// Cells for all pairs with (low + 1)(high + 1) ≤ product, the largest product of `most` cells.
void Cooccurrence::choose_cells(std::uint64_t most) {
    const std::uint64_t words = rows_.size();
    most = std::min(most, numbers_ / config_.threads);  // more cells would stay empty
    const auto row_end = [&](std::uint64_t low, std::uint64_t product) {
        return std::max(low, std::min(words, product / (low + 1)));
    };
    const auto cells = [&](std::uint64_t product) {
        std::uint64_t sum = 0;
        for (std::uint64_t low = 0; low < words && (low + 1) * (low + 1) <= product; ++low) {
            sum += row_end(low, product) - low;
        }
        return sum;
    };
    std::uint64_t fits = 0, not_needed = words * words + 1;
    while (fits + 1 < not_needed) {
        const std::uint64_t middle = fits + (not_needed - fits) / 2;
        (cells(middle) <= most ? fits : not_needed) = middle;
    }
    for (std::uint64_t low = 0; low < words && (low + 1) * (low + 1) <= fits; ++low) {
        rows_[low] = {cells_ - low, static_cast<std::uint32_t>(row_end(low, fits))};
        cells_ += row_end(low, fits) - low;
    }
}

bool Cooccurrence::run(double seconds) {
    if (is_finished_) return false;
    if (merge_) return merge(seconds);
    run_on_threads(workers_.size(), [&](std::size_t i) { work(*workers_[i], seconds); });
    for (const auto& worker : workers_) {
        if (worker->error) std::rethrow_exception(worker->error);
    }
    if (std::all_of(workers_.begin(), workers_.end(),
                    [](const auto& worker) { return worker->is_finished; })) {
        merge_ = std::make_unique<PairMerge>(runs_of_all(), config_.bytes / 4);
    }
    return true;
}

std::vector<PairRun> Cooccurrence::runs_of_all() {
    std::vector<PairRun> runs;
    for (const auto& worker : workers_) {
        worker->table.add_to(runs);
    }
    return runs;
}

std::vector<std::pair<std::uint32_t, std::uint64_t>> Cooccurrence::parts() const {
    const auto* ranges = dynamic_cast<const RangeWriter*>(writer_.get());
    return ranges ? ranges->parts() : std::vector<std::pair<std::uint32_t, std::uint64_t>>{};
}

CooccurrenceProgress Cooccurrence::progress() const {
    if (merge_) return {true, merge_->done(), merge_->of()};
    return {false, std::min<std::uint64_t>(done_, numbers_), numbers_};
}

std::uint64_t Cooccurrence::runs() const {
    std::uint64_t sum = 0;
    for (const auto& worker : workers_) sum += worker->table.written();
    return sum;
}

void Cooccurrence::work(Worker& worker, double seconds) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    try {
        while (!worker.is_finished) {
            if (!read(worker)) {
                empty_cells(worker);
                worker.is_finished = true;
            }
            if (Clock::now() >= end) break;
        }
    } catch (...) {
        worker.error = std::current_exception();
        worker.is_finished = true;
    }
}

// Counts one block of the file; false once the sentence that crosses the end of the worker's part has ended.
bool Cooccurrence::read(Worker& worker) {
    worker.block.resize(std::min<std::uint64_t>(kBlock, numbers_ - worker.at));
    if (worker.block.empty()) return false;
    if (worker.numbers.read(worker.at, worker.block) != worker.block.size()) {
        throw IoError(file_ + " was truncated while it was being read; run the command again");
    }
    done_ += worker.block.size();
    for (const std::int32_t word_id : worker.block) {
        const bool is_last = ++worker.at >= worker.last;
        if (word_id != kSentenceEnd) {
            if (worker.is_within) count(worker, word_id);
            continue;
        }
        worker.recent.clear();
        if (is_last) return false;
        worker.is_within = true;
    }
    return true;
}

void Cooccurrence::count(Worker& worker, std::int32_t word_id) {
    if (static_cast<std::size_t>(word_id) >= number_of_.size())
        throw IoError(file_ + " contains a word id that is out of range");
    const std::int32_t number = number_of_[static_cast<std::size_t>(word_id)];
    if (number < 0) return;
    const std::uint32_t word = static_cast<std::uint32_t>(number);
    const std::uint64_t offset = offset_of(config_.seed);
    auto& recent = worker.recent;
    const std::size_t n = recent.size(), most = std::min(n, config_.window);
    for (std::size_t d = 1; d <= most; ++d) {
        const std::uint32_t other = recent[n - d];
        const std::uint32_t low = std::min(word, other), high = std::max(word, other);
        const Row& row = rows_[low];
        if (high < row.reach) {
            worker.cells[row.begin + high] += shares_[d - 1];
        } else {
            worker.table.add(mixed(pair_of(low, high), offset), shares_[d - 1]);
        }
    }
    if (n >= kBlock + config_.window)
        recent.erase(recent.begin(), recent.end() - static_cast<std::ptrdiff_t>(most));
    recent.push_back(word);
}

void Cooccurrence::empty_cells(Worker& worker) {
    const std::uint64_t offset = offset_of(config_.seed);
    for (std::uint32_t low = 0; low < rows_.size() && rows_[low].reach > low; ++low) {
        for (std::uint32_t high = low; high < rows_[low].reach; ++high) {
            const std::uint64_t amount = worker.cells[rows_[low].begin + high];
            if (amount) worker.table.add(mixed(pair_of(low, high), offset), amount);
        }
    }
    worker.cells = {};
}

bool Cooccurrence::merge(double seconds) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    do {
        for (std::size_t i = 0; i < kBlock; ++i) {
            Entry entry;
            if (!merge_->next(entry)) {
                writer_->finish();
                is_finished_ = true;
                return false;
            }
            writer_->add(entry);
        }
    } while (Clock::now() < end);
    return true;
}

}  // namespace chainrule
