// Records dealt by a word, and got back sorted by it, stably: most of them lie in a file meanwhile.
//
// A record is so many numbers of 32 bits; the first is the word, with one bit more that sorting does not look
// at. How often each word comes is known before, so that ranges of words can be chosen that fit into memory,
// and each has its place in the file. A word that alone does not fit is a range without others, which needs
// no sorting.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "base/temp_file.hpp"

namespace chainrule {

inline constexpr std::uint32_t kMark = 0x80000000;  // beside a word, for whoever deals

// Memory, in numbers of 32 bits.
struct DealingSpace {
    Array<std::uint32_t> sorted;  // records of one range
    Array<std::uint32_t> ahead;   // as many, for another thread to sort the next range in; or none
    std::size_t dealt;            // buffers of all ranges together
    std::size_t stream;           // the buffer of one file
    std::size_t records = 0;      // most of them in a range, if not 0
};

class Dealing {
  public:
    // `times[w]` records of word w will come, each of `width` numbers.
    Dealing(std::shared_ptr<const SpillFolder> folder, DealingSpace& space,
            std::span<const std::uint32_t> times, std::size_t width);

    // Room for the next record, of word w; the caller writes all of it, w at the front.
    std::uint32_t* next(std::uint32_t word) {
        Range& range = ranges_[range_of_[word]];
        if (range.filled == buffered_) [[unlikely]]
            flush(range);
        return range.buffer + std::exchange(range.filled, range.filled + width_);
    }
    void finish();  // all have come

    // Records of one word, one behind the other, the words rising; a word may come in several pieces.
    using Use = std::function<void(std::uint32_t word, const std::uint32_t* records, std::size_t count)>;
    void sorted(const Use& use);

  private:
    struct Range {
        std::uint32_t from, to;     // words
        std::uint64_t begin, size;  // records before it, and of it
        std::uint64_t written = 0;  // numbers in the file
        std::uint32_t* buffer = nullptr;
        std::size_t filled = 0;
    };

    void flush(Range& range);
    bool is_sortable(const Range& range) const;
    void sort(const Range& range, std::uint32_t* into) const;
    void stream(const Range& range, const Use& use) const;

    DealingSpace& space_;
    std::span<const std::uint32_t> times_;
    std::size_t width_;
    SpillFile file_;
    std::vector<Range> ranges_;
    Array<std::uint32_t> range_of_;  // [word]
    Array<std::uint32_t> buffers_;
    std::size_t buffered_ = 0;  // numbers for each range: a multiple of the width
};

}  // namespace chainrule
