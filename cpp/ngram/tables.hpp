// A back-off model as plain tables, and how its rows are read: what estimating, reading ARPA and pruning end
// in, and what every layout of a model file, and ARPA, is written from.
//
// Rows of one order are sorted by context, then by word, all by number: the rows that continue row i of order
// n are rows [first[i], first[i + 1]) of order n + 1. At order 1 the row is the word's number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.hpp"

namespace chainrule {

struct TableLevel {
    Array<std::uint32_t> word;  // w_n
    // Of each row one order down where its continuations begin here; one more, where the last ones end. At
    // order 1 it is {0, V}.
    Array<std::uint32_t> first;
    Array<float> log_prob;  // natural logarithm of p(w | h), by row; −inf where it is 0
    Array<float>
        log_backoff;  // of the row as a context, 0 where it never was one; empty at the highest order

    std::size_t size() const { return word.size(); }
};

// What does not grow with the text.
struct ModelFacts {
    std::uint32_t vocabulary = 0, begin = 0, end = 0;
    std::uint32_t unknown = 0xFFFFFFFF;  // the number of <unk>; this where there is none
    bool is_stream = false;              // a line goes on from the line before
    bool is_closed = false;              // <unk> has no probability
    bool is_normalized = true;
    float log_missing = 0;  // weight of a context that was never seen
    // With each n-gram the one without its first word is stored, as where no rare ones were left out: a word
    // that is not stored after a context is not stored after a longer one. False: it need not be so.
    bool holds_suffixes = false;
    // Of a stream: the n-grams that begin with <s> are those of the start of a text. False: <s> is read as
    // </s>.
    bool starts_at_begin = false;
};

// Rows of a model, a piece at a time: of tables in memory, or of files made by a training that memory was
// short for. Reading is in order as far as it can be, and may be done again from the start. Several threads
// may read.
class Rows {
  public:
    virtual ~Rows() = default;
    virtual std::size_t order() const = 0;
    virtual std::uint64_t size(std::size_t n) const = 0;  // rows of order n = 1 …
    // Rows [from, from + count) of order n into these; those that are null are not wanted. `first` takes
    // count + 1 numbers, where the continuations of each row begin one order up; not of the highest order.
    // `log_backoff` is 0 at the highest order.
    virtual void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word,
                      float* log_prob, float* log_backoff, std::uint32_t* first) const = 0;
};

// Rows of tables in memory, which must outlive it.
class TableRows final : public Rows {
  public:
    explicit TableRows(const std::vector<TableLevel>& levels) : levels_(levels) {}
    std::size_t order() const override { return levels_.size(); }
    std::uint64_t size(std::size_t n) const override { return levels_[n - 1].size(); }
    void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word, float* log_prob,
              float* log_backoff, std::uint32_t* first) const override;

  private:
    const std::vector<TableLevel>& levels_;
};

inline void TableRows::read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word,
                            float* log_prob, float* log_backoff, std::uint32_t* first) const {
    const TableLevel& level = levels_[n - 1];
    if (word) std::copy_n(level.word.begin() + from, count, word);
    if (log_prob) std::copy_n(level.log_prob.begin() + from, count, log_prob);
    if (log_backoff && level.log_backoff.size()) {
        std::copy_n(level.log_backoff.begin() + from, count, log_backoff);
    } else if (log_backoff) {
        std::fill_n(log_backoff, count, 0.0F);
    }
    if (first && n < levels_.size()) std::copy_n(levels_[n].first.begin() + from, count + 1, first);
}

}  // namespace chainrule
