// How often words stand near each other: X_ij = Σ 1 / distance over all places where i and j stand within
// `window` words of one sentence, on either side. Counted in bounded memory into a file of records.
//
// X is symmetric, so that only pairs i ≤ j are counted. Those of frequent words have a cell each; the others
// go to a table ordered by a mixed form of the pair (`mixed`), which is written to disk as a run when it is
// full. Runs merged are therefore records in an order that is random but always the same: that of learning.
// Sums are whole numbers, and nothing about the file depends on the memory or on the threads.
// embeddings/glove_twin.py makes the same file.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vectors/pair_merge.hpp"

namespace chainrule {

struct Record {
    std::int32_t i;
    std::int32_t j;
    float x;
};
static_assert(sizeof(Record) == 12);

struct CooccurrenceConfig {
    std::size_t window = 5;
    std::uint64_t bytes = 1ULL << 30;  // of memory, about; never so few that nothing fits
    std::size_t threads = 1;
    std::uint64_t seed = 0;  // of the order of the records
};

struct CountedSoFar {
    bool is_merging;  // `done` counts pairs then, not numbers of the text
    std::uint64_t done;
    std::uint64_t of;
};

// A file that is gone when this is, unless it is kept.
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

class Cooccurrence {
  public:
    // `file` and `number_of` as for Word2vec; `words` are the final numbers 0 … words − 1, the frequent ones
    // first. Records go to `out`, runs to files beside it.
    Cooccurrence(const CooccurrenceConfig& config, const std::string& file, std::uint64_t numbers,
                 std::span<const std::int32_t> number_of, std::size_t words, const std::string& out);
    ~Cooccurrence();

    bool run(double seconds);  // count for so long, a block at least; whether there is more to do
    CountedSoFar counted() const;
    std::uint64_t records() const { return records_; }
    std::uint64_t runs() const;  // that did not fit the memory

  private:
    struct Row {
        std::uint64_t begin = 0;  // the cell of (low, high) is begin + high, round the end of the numbers
        std::uint32_t reach = 0;  // for high below this
    };
    struct Worker;
    void choose_cells(std::uint64_t most);
    void work(Worker& worker, double seconds);
    bool read(Worker& worker);
    void count(Worker& worker, std::int32_t there);
    void empty_cells(Worker& worker);
    std::vector<PairRun> runs_of_all();
    bool merge(double seconds);
    void write(std::uint64_t pair, std::uint64_t amount);
    void flush();

    CooccurrenceConfig config_;
    std::string file_;
    std::uint64_t numbers_;
    std::vector<std::int32_t> number_of_;
    std::vector<std::uint64_t> shares_;  // of a pair at each distance, in parts of unit_
    double unit_;
    std::vector<Row> rows_;
    std::uint64_t cells_ = 0;
    std::atomic<std::uint64_t> done_{0};
    std::vector<std::unique_ptr<Worker>> workers_;
    std::unique_ptr<PairMerge> merge_;
    TemporaryFile out_path_;
    std::ofstream out_;
    std::vector<Record> buffer_;
    std::uint64_t records_ = 0;
    bool is_finished_ = false;
};

}  // namespace chainrule
