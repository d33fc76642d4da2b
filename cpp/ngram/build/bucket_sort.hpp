// Stable external bucket sort of records by a word id, on several threads.
//
// A record is a fixed number of 32-bit words; the first is the word id plus one mark bit that sorting
// ignores. The words are divided once into ranges whose records fit in memory. A word that does not fit alone
// forms a range of its own, which needs no sorting. Records are distributed into a file with a place for each
// range; then each range is read and sorted by itself.
//
// Consecutive ranges form parts. Each part of the input is distributed by one thread, and within a range the
// records of a part precede those of the next part, so that the result does not depend on the threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "base/spill_file.hpp"

namespace chainrule {

inline constexpr std::uint32_t kMark = 0x80000000;  // flag bit of a word, free for the caller

// Words divided into ranges, and ranges into parts.
class WordRanges {
  public:
    WordRanges() = default;
    // A range has at most `most` records, unless they are of one word; `times[w]` is the largest number of
    // records of word w. Parts, at most `parts`, have about the same number of records.
    WordRanges(std::span<const std::uint64_t> times, std::uint64_t most, std::size_t parts);

    std::size_t size() const { return sizes_.size(); }
    std::uint32_t begin(std::size_t range) const { return begins_[range]; }  // first word
    std::uint32_t end(std::size_t range) const { return begins_[range + 1]; }
    std::uint64_t records(std::size_t range) const { return sizes_[range]; }
    std::uint32_t of(std::uint32_t word) const { return range_of_[word]; }

    std::size_t parts() const { return parts_.size() - 1; }
    std::size_t part_begin(std::size_t part) const { return parts_[part]; }  // first range
    std::size_t part_end(std::size_t part) const { return parts_[part + 1]; }
    std::size_t part_of(std::size_t range) const { return part_of_[range]; }

  private:
    std::vector<std::uint32_t> begins_;            // [range], and the end
    std::vector<std::uint64_t> sizes_;             // [range]
    std::vector<std::size_t> parts_;               // [part], and the end
    std::vector<std::uint32_t> part_of_;           // [range]
    UninitializedBuffer<std::uint32_t> range_of_;  // [word]
};

// Number of records by part of the input and by range.
class RecordCounts {
  public:
    RecordCounts(std::size_t parts, std::size_t ranges)
        : parts_(parts), ranges_(ranges), counts_(parts * ranges, 0) {}

    std::size_t parts() const { return parts_; }
    std::size_t ranges() const { return ranges_; }
    std::uint64_t& of(std::size_t part, std::size_t range) { return counts_[part * ranges_ + range]; }

  private:
    std::size_t parts_, ranges_;
    std::vector<std::uint64_t> counts_;
};

// The file of the records of all ranges.
class BucketFile {
  public:
    BucketFile(std::shared_ptr<const SpillFolder> folder, std::size_t width, RecordCounts counts);

    std::size_t width() const { return width_; }
    std::size_t ranges() const { return begins_.size() - 1; }
    std::uint64_t begin(std::size_t range) const { return begins_[range]; }  // records before the range
    std::uint64_t size(std::size_t range) const { return begins_[range + 1] - begins_[range]; }

    void read(std::size_t range, std::uint64_t from, std::uint32_t* records, std::size_t count) const {
        file_.read((begins_[range] + from) * width_, records, count * width_);
    }
    void release(std::size_t range) { file_.release(begins_[range] * width_, size(range) * width_); }

  private:
    friend class BucketWriter;

    std::size_t width_;
    SpillFile file_;
    std::vector<std::uint64_t> begins_;
    RecordCounts next_;  // position of the next record by part and range
};

// Distributes the records of one part of the input. Writers of the same part may run in parallel, if the
// order of its records does not matter.
class BucketWriter {
  public:
    // `buffers` is divided among the ranges.
    BucketWriter(BucketFile& file, std::size_t part, std::span<std::uint32_t> buffers);

    // Returns space for the next record of a range; the caller writes all of it, the word first.
    std::uint32_t* next(std::uint32_t range) {
        Bucket& bucket = buckets_[range];
        if (bucket.filled == buffered_) [[unlikely]]
            flush(range);
        return bucket.buffer + std::exchange(bucket.filled, bucket.filled + width_);
    }
    void finish();  // call after the last record

  private:
    struct Bucket {
        std::uint32_t* buffer;
        std::size_t filled;
    };

    void flush(std::size_t range);

    BucketFile& file_;
    std::size_t part_, width_, buffered_;  // buffered numbers per range, a multiple of the record width
    std::vector<Bucket> buckets_;
    UninitializedBuffer<std::uint32_t> least_;  // used if `buffers` has less than a record per range
};

// Calls `use` with the records of a range, one word at a time, words ascending; one word may come in several
// calls. `times[w]` is the number of records of word w, needed for ranges that are sorted; the records are
// sorted in `sorted` if they fit and are not more than `most` (0: unlimited). `stream` is a buffer for
// reading.
using UseRecords = std::function<void(std::uint32_t word, const std::uint32_t* records, std::size_t count)>;
void read_sorted(const BucketFile& file, const WordRanges& ranges, std::size_t range,
                 std::span<const std::uint32_t> times, std::span<std::uint32_t> sorted, std::size_t most,
                 std::span<std::uint32_t> stream, const UseRecords& use);

}  // namespace chainrule
