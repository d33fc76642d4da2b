// The n-grams of an ARPA file, order by order: as they are listed in any order, then sorted into tables, and
// found again as the contexts of longer ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/buffer.hpp"
#include "base/prefetch.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// One entry of a file. An orphan is one whose context the file does not list: `context` is kOrphan, and
// `word` its number among the orphans of its order.
struct Listed {
    static constexpr std::uint32_t kOrphan = 0xFFFFFFFF;

    std::uint32_t context;  // row one order down
    std::uint32_t word;
    float log_prob, log_backoff;
};

// From this entry on, lines count up by one with the entries.
struct LineRun {
    std::uint64_t entry, line;
};

// All entries of one order, in the order of the file.
struct ListedOrder {
    std::vector<std::vector<Listed>> pieces;
    std::uint64_t size = 0;
    std::vector<LineRun> runs;
    std::vector<std::uint32_t> orphan_ids;  // n by n

    std::uint64_t line_of(std::uint64_t entry) const;
};

// Where the rows of one order are, by (context row, word): open addressing.
class RowIndex {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    static std::uint64_t key(std::uint32_t context, std::uint32_t word) {
        return std::uint64_t{context} << 32 | word;
    }
    RowIndex() = default;
    RowIndex(Array<std::uint64_t> keys, std::size_t threads);  // by row

    // To be called in this turn for many keys, each stage for all of them: memory is asked for ahead.
    void prefetch_slot(std::uint64_t key) const { prefetch(&slots_[home(key)]); }
    void prefetch_key(std::uint64_t key) const {
        const std::uint32_t row = slots_[home(key)];
        if (row != kNone) prefetch(&keys_[row]);
    }
    std::uint32_t find(std::uint64_t key) const {
        for (std::size_t i = home(key);; i = (i + 1) & mask_) {
            const std::uint32_t row = slots_[i];
            if (row == kNone || keys_[row] == key) return row;
        }
    }

  private:
    std::size_t home(std::uint64_t key) const {
        key = (key ^ key >> 32) * 0x9E3779B97F4A7C15ULL;
        return (key ^ key >> 29) * 0xBF58476D1CE4E5B9ULL >> shift_;
    }

    Array<std::uint64_t> keys_;
    Array<std::uint32_t> slots_;  // rows; kNone: free
    std::size_t mask_ = 0;
    int shift_ = 63;
};

struct SortedOrder {
    TableLevel level;
    Array<std::uint64_t> keys;  // by row, for a RowIndex; empty at the highest order
};

// What is listed in the order of its context rows, of which there are `contexts`, then of words; orphans are
// left out. `begin` is never predicted. An n-gram that is there twice is an ArpaFault.
SortedOrder sort_listed(const ListedOrder& listed, std::size_t contexts, std::uint32_t begin, bool is_top,
                        std::size_t threads);

// The same of 1-grams, whose words are ids already; those not listed have probability 0.
TableLevel unigrams_of(const ListedOrder& listed, std::uint32_t vocabulary, bool is_top);

}  // namespace chainrule
