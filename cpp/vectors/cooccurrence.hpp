// Co-occurrence counts of words in bounded memory, written to a file of records.
//
// X_ij = Σ 1 / distance over all positions where i and j are at most `window` words apart in one sentence, on
// either side. X is symmetric, so only pairs i ≤ j are counted. Pairs of frequent words have a cell in an
// array; others go to a hash table ordered by a mixed form of the pair (`mixed`), which is written to disk as
// a sorted run when it is full. Merging the runs yields the records in a pseudo-random but fixed order, which
// is the training order. Sums are integers, so the file depends neither on the memory nor on the number of
// threads.
//
// The parts of a divided text are counted by themselves (`CooccurrenceConfig::ranges`), as bytes in ranges of
// keys; `CooccurrenceSum` adds up a range. The records of all ranges, one after the other, are the file of
// the whole text.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_stream.hpp"

namespace chainrule {

// Finalizer of splitmix64 (Steele et al. 2014): a bijection that shuffles the order of pairs.
inline std::uint64_t mixed(std::uint64_t pair, std::uint64_t offset) {
    std::uint64_t z = pair + offset;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

inline std::uint64_t unmixed(std::uint64_t z, std::uint64_t offset) {
    z = (z ^ (z >> 31) ^ (z >> 62)) * 0x319642B2D24D8EC3ULL;
    z = (z ^ (z >> 27) ^ (z >> 54)) * 0x96DE1B173F119089ULL;
    return (z ^ (z >> 30) ^ (z >> 60)) - offset;
}

struct Entry {
    std::uint64_t key;     // the mixed pair
    std::uint64_t amount;  // 0: a free slot
};

// Open addressing by the leading bits of the key without wrapping, so that slots are nearly sorted.
class PairTable {
  public:
    static constexpr std::size_t kMin = 64;  // slots

    explicit PairTable(std::size_t most_slots);

    void prefetch(std::uint64_t key) const { __builtin_prefetch(&slots_[key >> shift_], 1); }
    bool add(std::uint64_t key,
             std::uint64_t amount);   // false if full: call `sorted` and `clear`, then retry
    std::span<const Entry> sorted();  // all entries; call `clear` before adding more
    void clear();

  private:
    static constexpr std::size_t kTail = 64;  // extra slots after the last

    bool grow();

    std::size_t most_;
    int shift_;  // 64 − log2 of the slots without the tail
    std::size_t used_ = 0;
    std::vector<Entry> slots_;
};

// A sorted run: entries in memory, or entries first … last − 1 of a file, which must outlive it.
class PairRun {
  public:
    explicit PairRun(std::span<const Entry> entries) : entries_(entries), size_(entries.size()) {}
    PairRun(std::ifstream& in, std::uint64_t first, std::uint64_t last)
        : in_(&in), first_(first), last_(last), size_(last - first) {}

    bool fill(std::size_t size);  // reads up to `size` entries if the buffer is empty; false at the end
    const Entry& front() const { return entries_[at_]; }
    void step() { ++at_; }
    std::uint64_t size() const { return size_; }

  private:
    std::span<const Entry> entries_;
    std::size_t at_ = 0;
    std::ifstream* in_ = nullptr;
    std::uint64_t first_ = 0, last_ = 0, size_;
    std::vector<Entry> block_;
};

// K-way merge of sorted runs; entries of the same pair are summed.
class PairMerge {
  public:
    PairMerge(std::vector<PairRun> runs, std::uint64_t bytes);

    bool next(Entry& entry);
    std::uint64_t done() const { return done_; }
    std::uint64_t of() const { return of_; }

  private:
    struct Head {
        std::uint64_t key;
        std::size_t run;
        bool operator<(const Head& other) const { return key > other.key; }  // min-heap
    };
    Entry take();

    std::vector<PairRun> runs_;
    std::vector<Head> heap_;
    std::size_t size_ = 0;  // entries of a run in memory
    std::uint64_t done_ = 0, of_ = 0;
};

// A file removed by the destructor unless keep() was called.
class TemporaryFile {
  public:
    explicit TemporaryFile(std::filesystem::path path) : path_(std::move(path)) {}
    ~TemporaryFile();
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    const std::filesystem::path& path() const { return path_; }
    void keep() { is_kept_ = true; }

  private:
    std::filesystem::path path_;
    bool is_kept_ = false;
};

// Sorted runs in a temporary file.
class SortedRunFile {
  public:
    explicit SortedRunFile(const std::filesystem::path& path) : path_(path) {}

    void write(std::span<const Entry> run);
    void add_to(std::vector<PairRun>& runs);  // the runs of the file, which is complete
    std::uint64_t runs() const { return ends_.size(); }

  private:
    TemporaryFile path_;  // removed after the streams are closed
    std::ofstream out_;
    std::ifstream in_;
    std::vector<std::uint64_t> ends_;  // ends of the runs, in entries
};

// A pair table that is written to a file as a sorted run whenever it is full.
class SpillingPairTable {
  public:
    SpillingPairTable(std::size_t slots, const std::filesystem::path& runs) : table_(slots), file_(runs) {}

    void add(std::uint64_t key, std::uint64_t amount);
    // Adds all entries in sorted runs; this object must outlive them.
    void add_to(std::vector<PairRun>& runs);
    std::uint64_t written() const { return file_.runs(); }  // number of runs in the file

  private:
    static constexpr std::size_t kAhead = 16;  // prefetch distance in pairs

    void add_now(std::uint64_t key, std::uint64_t amount);

    PairTable table_;
    std::array<Entry, kAhead> waiting_{};
    std::size_t oldest_ = 0;
    SortedRunFile file_;
};

struct Record {
    std::int32_t i;
    std::int32_t j;
    float x;
};
static_assert(sizeof(Record) == 12);

struct CooccurrenceConfig {
    std::size_t window = 5;
    std::uint64_t bytes = 1ULL << 30;  // approximate memory limit
    std::size_t threads = 1;
    std::uint64_t seed = 0;  // determines the order of the records
    std::size_t ranges = 0;  // if not 0: write the counts in so many ranges of keys instead of records
};

struct CooccurrenceProgress {
    bool is_merging;  // if true, `done` counts pairs instead of tokens
    std::uint64_t done;
    std::uint64_t of;
};

// Receives merged pairs in the order of their keys and writes them to a file.
class PairWriter {
  public:
    explicit PairWriter(const std::string& out);
    virtual ~PairWriter() = default;

    virtual void add(const Entry& entry) = 0;
    virtual void finish();  // keeps the file, which is removed otherwise
    std::uint64_t records() const { return records_; }

  protected:
    void write(const void* bytes, std::size_t size);

    std::uint64_t records_ = 0;

  private:
    TemporaryFile path_;
    std::ofstream out_;
};

// Writes a file of records: both directions of each pair.
class RecordWriter final : public PairWriter {
  public:
    RecordWriter(const CooccurrenceConfig& config, const std::string& out);

    void add(const Entry& entry) override;
    void finish() override;

  private:
    void flush();

    std::uint64_t offset_;
    double unit_;
    std::vector<Record> buffer_;
};

// Writes pairs as bytes for CooccurrenceSum, in parts of one range of keys each.
class RangeWriter final : public PairWriter {
  public:
    RangeWriter(std::size_t ranges, const std::string& out) : PairWriter(out), ranges_(ranges) {}

    void add(const Entry& entry) override;
    void finish() override;
    const std::vector<std::pair<std::uint32_t, std::uint64_t>>& parts() const { return parts_; }

  private:
    void flush();

    std::uint64_t ranges_;
    std::uint32_t range_ = 0;
    std::uint64_t last_ = 0;  // key of the previous pair of the part
    ByteWriter bytes_;
    std::vector<std::pair<std::uint32_t, std::uint64_t>> parts_;  // range and size
};

// Adds up the counts of the parts of a text for one range of keys by merging: they are sorted by key. (Sorted
// keys would fill a PairTable from one end, which takes quadratic time.)
class CooccurrenceSum {
  public:
    // Records go to `out`, counts that exceed half of `config.bytes` to a file next to it.
    CooccurrenceSum(const CooccurrenceConfig& config, const std::string& out);

    void add(std::string_view counts);  // a part of RangeWriter
    std::uint64_t finish();             // writes the records and returns their number

  private:
    CooccurrenceConfig config_;
    std::vector<std::vector<Entry>> parts_;  // in memory
    std::uint64_t entries_ = 0;              // in memory
    SortedRunFile file_;
    RecordWriter writer_;
};

class Cooccurrence {
  public:
    // `file` and `number_of` as for Word2vec; final ids are 0 … words − 1 by descending frequency.
    // Records go to `out`, runs to files next to it.
    Cooccurrence(const CooccurrenceConfig& config, const std::string& file, std::uint64_t numbers,
                 std::span<const std::int32_t> number_of, std::size_t words, const std::string& out);
    ~Cooccurrence();

    bool run(double seconds);  // counts for about `seconds`, at least one block; false when finished
    CooccurrenceProgress progress() const;
    std::uint64_t records() const { return writer_->records(); }
    // Range and size in bytes of the parts of the file, in order; for `ranges`.
    std::vector<std::pair<std::uint32_t, std::uint64_t>> parts() const;
    std::uint64_t runs() const;  // number of runs written to disk

  private:
    struct Row {
        std::uint64_t begin = 0;  // the cell of (low, high) is begin + high, modulo 2^64
        std::uint32_t reach = 0;  // valid for high < reach
    };
    struct Worker;
    void choose_cells(std::uint64_t most);
    void work(Worker& worker, double seconds);
    bool read(Worker& worker);
    void count(Worker& worker, std::int32_t id);
    void empty_cells(Worker& worker);
    std::vector<PairRun> runs_of_all();
    bool merge(double seconds);

    CooccurrenceConfig config_;
    std::string file_;
    std::uint64_t numbers_;
    std::vector<std::int32_t> number_of_;
    std::vector<std::uint64_t> shares_;  // 1 / distance in units of unit_
    std::vector<Row> rows_;
    std::uint64_t cells_ = 0;
    std::atomic<std::uint64_t> done_{0};
    std::vector<std::unique_ptr<Worker>> workers_;
    std::unique_ptr<PairMerge> merge_;
    std::unique_ptr<PairWriter> writer_;
    bool is_finished_ = false;
};

}  // namespace chainrule
