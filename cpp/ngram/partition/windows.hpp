// Windows of a text, encoded by partition: sorted, equal ones counted once, front-coded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ngram/partition/partition_plan.hpp"
#include "text/encode.hpp"

namespace chainrule {

// Collects the windows of a text. A record is the windows of one partition as bytes; the records of a
// partition may be decoded in any order.
class WindowEncoder {
  public:
    // `plan` must outlive this object.
    explicit WindowEncoder(const PartitionPlan& plan);

    // Sets the words before the text, the last one last; fewer than order − 1: the text begins with <s>.
    // Stream only; in lines, every line begins with <s>.
    void start(std::span<const std::int32_t> words);
    // Adds ids with `end` after each line. Throws ArgumentError for ids out of range and for <s>.
    void add(std::span<const std::int32_t> ids);
    // Adds lines that end with LF.
    void add_text(std::string_view lines, const WordEncoding& encoding);

    std::size_t windows() const { return windows_; }  // since the last call of `take`
    std::uint64_t tokens() const { return tokens_; }
    std::uint64_t unknown() const { return unknown_; }  // tokens with the unknown id in add_text

    using Record = std::pair<std::uint32_t, std::string>;  // partition, bytes
    // Returns the records of the windows added so far.
    std::vector<Record> take();

  private:
    void push(std::uint32_t id);
    void begin_line();
    void check_size() const;
    std::string encode(std::vector<std::uint32_t>& positions) const;

    const PartitionPlan& plan_;
    std::uint32_t order_;
    std::vector<std::uint32_t>
        words_;  // of the text, order − 1 words of context before each line or the text
    std::vector<std::vector<std::uint32_t>> positions_;  // [partition], of the last word of each window
    std::size_t windows_ = 0;
    std::uint64_t tokens_ = 0, unknown_ = 0;
};

// Different windows and how often each occurs, at most 2^32 − 1 times: counts saturate.
struct Windows {
    std::uint32_t order = 0;
    std::vector<std::uint32_t> words;  // [window][order]: the last word, then the context, nearest word first
    std::vector<std::uint32_t> counts;

    std::size_t size() const { return counts.size(); }
    const std::uint32_t* window(std::size_t i) const { return &words[i * order]; }
};

// Adds the windows of a record; those of different records are not merged. Throws Error for a damaged record
// and if there are more than `limit` windows.
void decode_windows(std::string_view record, const WindowShape& shape, std::uint64_t limit, Windows& into);

inline constexpr std::uint64_t kMaxWindows = 0xFFFFFFFE;  // of a partition: windows are numbered in 32 bits

inline std::uint32_t add_saturated(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t sum = a + b;
    return sum < a ? 0xFFFFFFFF : sum;
}

}  // namespace chainrule
