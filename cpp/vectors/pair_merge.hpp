// Sorted runs of pairs, in memory and on disk, as one.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <vector>

#include "vectors/pair_table.hpp"

namespace chainrule {

// One run: entries in memory, or entries first … last − 1 of a file, which outlives this.
class PairRun {
  public:
    explicit PairRun(std::span<const Entry> entries) : entries_(entries), size_(entries.size()) {}
    PairRun(std::ifstream& in, std::uint64_t first, std::uint64_t last)
        : in_(&in), first_(first), last_(last), size_(last - first) {}

    bool fill(std::size_t size);  // reads so many entries where none is left; whether there is another
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

// All entries of all runs in order, those of one pair added up.
class PairMerge {
  public:
    PairMerge(std::vector<PairRun> runs, std::uint64_t bytes);

    bool next(Entry& found);
    std::uint64_t done() const { return done_; }
    std::uint64_t of() const { return of_; }

  private:
    struct Head {
        std::uint64_t place;
        std::size_t run;
        bool operator<(const Head& other) const { return place > other.place; }  // the least on top
    };
    Entry take();

    std::vector<PairRun> runs_;
    std::vector<Head> heap_;
    std::size_t size_ = 0;  // entries of a run in memory
    std::uint64_t done_ = 0, of_ = 0;
};

}  // namespace chainrule
