// Estimated n-grams on their way from the partitions of contexts to the ranges of first words: runs of one
// context, (h, log γ(h), [w, log p(w | h)] …), front-coded.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/byte_stream.hpp"

namespace chainrule {

// Runs of one order, sorted by context.
class RunWriter {
  public:
    explicit RunWriter(std::uint32_t order);

    // `context` from its first word to its last.
    void begin_run(std::span<const std::uint32_t> context, float log_backoff, std::uint32_t size);
    void add(std::uint32_t word, float log_prob);

    void append_to(ByteWriter& out) const;

  private:
    std::uint32_t order_;
    std::vector<std::uint32_t> context_;  // of the last run
    std::uint32_t last_word_ = 0;
    std::uint64_t runs_ = 0;
    ByteWriter words_, backoffs_, log_probs_;
    std::unordered_map<std::uint32_t, std::uint8_t> backoff_codes_;
};

// Reads the runs of one order one after the other.
class RunReader {
  public:
    RunReader() = default;
    // Reads what RunWriter appended, and moves `in` behind it.
    RunReader(std::uint32_t order, ByteReader& in);

    bool has_run() const { return has_run_; }
    // Of the current run.
    std::span<const std::uint32_t> context() const { return context_; }
    float log_backoff() const { return log_backoff_; }
    std::uint32_t size() const { return size_; }
    // Reads the n-grams of the current run, each once, before `next`.
    std::uint32_t next_word() { return last_word_ += words_.varint32(); }
    float next_log_prob() { return log_probs_.number<float>(); }
    void next();

  private:
    std::uint32_t order_ = 2;
    std::uint64_t runs_ = 0;  // still to be read
    bool has_run_ = false;
    std::vector<std::uint32_t> context_;
    float log_backoff_ = 0;
    std::uint32_t size_ = 0, last_word_ = 0;
    ByteReader words_, backoffs_, log_probs_;
    std::vector<float> backoff_table_;
};

}  // namespace chainrule
