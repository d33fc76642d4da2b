// Modified Kneser–Ney estimation in external memory: the same rows as count_ngrams and estimate_kneser_ney,
// bit for bit, through temporary files and on several threads.
//
// As in count.hpp, the occurrences of order n become those of order n + 1 by a stable sort by the word to
// their left. Here an occurrence does not point into the text: it carries the left words that longer n-grams
// will need, the row of its suffix, its last word and the probability of the suffix. Occurrences are
// distributed into ranges of left words that fit in memory, and each range is sorted there (bucket_sort.hpp).
// The ranges are the same for all orders, so the contexts of the n-grams of a range are the rows of that
// range one order down, and ranges are processed in parallel. Each order takes two passes, because discounts
// depend on all of its counts:
// - counting: rows, counts, continuation counts, and the left words of each occurrence;
// - estimation: p and γ, context by context; each occurrence is passed on to the next order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.hpp"
#include "base/input_file.hpp"
#include "base/spill_file.hpp"
#include "ngram/build/discounts.hpp"
#include "ngram/build/kneser_ney.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// Word ids of a text with `end` after each line, in memory or in a file. Several threads may read.

class IdSource {
  public:
    virtual ~IdSource() = default;
    virtual std::uint64_t size() const = 0;
    // Returns ids [from, from + count), which may be stored in `buffer`.
    virtual std::span<const std::int32_t> read(std::uint64_t from, std::size_t count,
                                               UninitializedBuffer<std::int32_t>& buffer) const = 0;
};

// An array in memory, which must outlive this object.
class IdArray final : public IdSource {
  public:
    explicit IdArray(std::span<const std::int32_t> ids) : ids_(ids) {}
    std::uint64_t size() const override { return ids_.size(); }
    std::span<const std::int32_t> read(std::uint64_t from, std::size_t count,
                                       UninitializedBuffer<std::int32_t>&) const override {
        return ids_.subspan(from, count);
    }

  private:
    std::span<const std::int32_t> ids_;
};

// A file of little-endian 32-bit ids, read with `pread`; throws Error if it cannot be read or is truncated.
class IdFile final : public IdSource {
  public:
    explicit IdFile(const std::string& path);
    std::uint64_t size() const override { return file_.size() / sizeof(std::int32_t); }
    std::span<const std::int32_t> read(std::uint64_t from, std::size_t count,
                                       UninitializedBuffer<std::int32_t>& buffer) const override;

  private:
    InputFile file_;
};

// Vocabulary size and special ids of the text.
struct TextMetadata {
    std::uint32_t vocabulary = 0, begin = 0, end = 0;
    bool is_stream = false;  // one <s>; n-grams cross line boundaries
};

// Rows of a model in temporary files.

// Columns of one order, one 32-bit number per row in each file, one more in `first`.
struct SpilledLevel {
    SpillFile word, log_prob, log_backoff, first;  // the last two are empty at the highest order
    std::uint64_t size = 0;
};

class SpilledRows final : public Rows {
  public:
    explicit SpilledRows(std::vector<SpilledLevel> levels) : levels_(std::move(levels)) {}
    std::size_t order() const override { return levels_.size(); }
    std::uint64_t size(std::size_t n) const override { return levels_[n - 1].size; }
    void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word, float* log_prob,
              float* log_backoff, std::uint32_t* first) const override;

  private:
    std::vector<SpilledLevel> levels_;
};

struct ExternalOptions {
    std::size_t order = 5;
    std::uint32_t unknown = kEveryWord;           // word excluded from prediction, if any
    std::vector<std::uint32_t> cut_offs;          // one per order, or empty
    std::uint64_t memory = 0;                     // memory limit of the whole process in bytes
    std::string folder;                           // for temporary files
    std::size_t threads = 1;                      // fewer are used if memory does not suffice
    bool is_small = false, is_quantized = false;  // output format, for the memory budget
    std::size_t records = 0;                      // maximum records sorted at once; 0: limited by memory
    std::uint64_t max_rows = 0xFFFFFFFE;          // of one order, before cut-offs: rows have 32 bits
    std::uint32_t max_count = 0xFFFFFFFF;         // counts from this on are kept apart, with 64 bits
    std::function<void(std::size_t done, std::size_t of)> progress;  // may be empty; may throw
    std::function<void()> check_interrupt;  // called often by the calling thread; may be empty; may throw
};

struct ExternalModel {
    std::unique_ptr<SpilledRows> rows;
    std::vector<Discounts> discounts;  // by order
    std::size_t writers = 1;           // number of writer threads that fit the memory limit
};

// Throws Error if memory does not suffice (with the minimum that does), if the folder is not writable or
// full, or if the ids are invalid for make_tokens.
ExternalModel estimate_external(const IdSource& ids, const TextMetadata& text,
                                const ExternalOptions& options);

}  // namespace chainrule
