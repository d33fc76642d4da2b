// A back-off model as plain tables, and the interface through which its rows are read. Estimation, ARPA
// reading and pruning produce tables; model files and ARPA files are written from them.
//
// Rows of one order are sorted by context, then by word id. The rows that extend row i of order n are rows
// [first[i], first[i + 1]) of order n + 1. At order 1 the row number is the word id.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.hpp"

namespace chainrule {

struct TableLevel {
    UninitializedBuffer<std::uint32_t> word;  // w_n
    // For each row one order down, the index of its first extension here, and one entry more for the end.
    // {0, V} at order 1.
    UninitializedBuffer<std::uint32_t> first;
    UninitializedBuffer<float> log_prob;  // natural logarithm of p(w | h), by row; −inf where it is 0
    UninitializedBuffer<float>
        log_backoff;  // of the row as a context, 0 if it has no continuations; empty at the highest order

    std::size_t size() const { return word.size(); }
};

// Properties of a model apart from its rows.
struct ModelMetadata {
    std::uint32_t vocabulary = 0, begin = 0, end = 0;
    std::uint32_t unknown = 0xFFFFFFFF;  // id of <unk>; 0xFFFFFFFF: none
    bool is_stream = false;              // lines continue the previous line
    bool is_closed = false;              // <unk> is never predicted
    bool is_normalized = true;
    float log_missing = 0;  // weight of an unseen context
    // Every suffix of a stored n-gram is stored as well, as in a model without count cut-offs: if a word
    // is not stored after a context, it is not stored after any longer one.
    bool holds_suffixes = false;
    // Stream models: n-grams beginning with <s> describe the start of a text. If false, <s> is read as
    // </s>.
    bool starts_at_begin = false;
};

// Reads rows of a model in ranges: from tables in memory, from spill files, or from a model file. Mostly
// sequential, may restart from the beginning; several threads may read.
class Rows {
  public:
    virtual ~Rows() = default;
    virtual std::size_t order() const = 0;
    virtual std::uint64_t size(std::size_t n) const = 0;  // rows of order n = 1 …
    // Copies rows [from, from + count) of order n; a null pointer skips that column. `first` receives
    // count + 1 indices of extensions one order up (not at the highest order). `log_backoff` is 0 at the
    // highest order.
    virtual void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word,
                      float* log_prob, float* log_backoff, std::uint32_t* first) const = 0;
};

// Rows of tables in memory, which must outlive this object.
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
