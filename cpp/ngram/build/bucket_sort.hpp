// Stable external bucket sort of records by a word id.
//
// A record is a fixed number of 32-bit words; the first is the word id plus one mark bit that sorting
// ignores. The number of records per word is known in advance, so that word ranges are chosen to fit in
// memory, each with its own place in the file. A word that does not fit alone forms a range of its own, which
// needs no sorting.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "base/spill_file.hpp"

namespace chainrule {

inline constexpr std::uint32_t kMark = 0x80000000;  // flag bit of a word, free for the caller

// Memory of the sort, in 32-bit numbers.
struct BucketSortMemory {
    UninitializedBuffer<std::uint32_t> sorted;  // records of one range
    UninitializedBuffer<std::uint32_t>
        ahead;                // the same size, for sorting the next range in another thread; or empty
    std::size_t buckets;      // total buffer size of all ranges
    std::size_t stream;       // buffer size of one file
    std::size_t records = 0;  // maximum number per range; 0: unlimited
};

class BucketSorter {
  public:
    // `times[w]` records of word w will be added, each of `width` numbers.
    BucketSorter(std::shared_ptr<const SpillFolder> folder, BucketSortMemory& space,
                 std::span<const std::uint32_t> times, std::size_t width);

    // Returns space for the next record of word w; the caller writes all of it, w first.
    std::uint32_t* next(std::uint32_t word) {
        Range& range = ranges_[range_of_[word]];
        if (range.filled == buffered_) [[unlikely]]
            flush(range);
        return range.buffer + std::exchange(range.filled, range.filled + width_);
    }
    void finish();  // call after the last record

    // Calls `use` with the records of one word at a time, words ascending; one word may come in several
    // calls.
    using Use = std::function<void(std::uint32_t word, const std::uint32_t* records, std::size_t count)>;
    void sorted(const Use& use);

  private:
    struct Range {
        std::uint32_t from, to;     // words
        std::uint64_t begin, size;  // records before the range, and in it
        std::uint64_t written = 0;  // numbers in the file
        std::uint32_t* buffer = nullptr;
        std::size_t filled = 0;
    };

    void flush(Range& range);
    bool is_sortable(const Range& range) const;
    void sort(const Range& range, std::uint32_t* into) const;
    void stream(const Range& range, const Use& use) const;

    BucketSortMemory& space_;
    std::span<const std::uint32_t> times_;
    std::size_t width_;
    SpillFile file_;
    std::vector<Range> ranges_;
    UninitializedBuffer<std::uint32_t> range_of_;  // [word]
    UninitializedBuffer<std::uint32_t> buffers_;
    std::size_t buffered_ = 0;  // buffered numbers per range, a multiple of the record width
};

}  // namespace chainrule
