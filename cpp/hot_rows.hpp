// The output rows of frequent words as one of several threads has them: a copy of its own, brought together
// with the shared one now and then, so that processors do not take the same cache lines from each other at
// every window.
//
// What is shared seldom is learnt apart and goes too far when it is added up; so the more frequent a word the
// oftener its row is shared, and the more threads there are the oftener each shares and the fewer rows it
// copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "aligned.hpp"

namespace chainrule {

// How many rows each of so many threads copies, at most; none where that is no use.
std::size_t copied_rows(std::size_t threads, std::size_t width);

// After how many words a thread shares rows.
std::uint64_t words_between_meetings(std::size_t threads);

// How many of its rows it shares at meeting 1, 2, …: the first 64 each time, four times as many every fourth
// time, four times as many again every sixteenth.
std::size_t rows_of_meeting(std::uint64_t meeting);

class HotRows {
  public:
    HotRows() = default;
    HotRows(const float* shared, std::size_t width, std::size_t rows);  // the first rows of `shared`

    bool has(std::size_t row) const { return row < rows_; }
    float* row(std::size_t row) { return own_.data() + row * width_; }

    // Add to the first `rows` shared rows what was learnt since the last time, and go on from them.
    void meet(float* shared, std::size_t rows, std::mutex& mutex);

  private:
    std::size_t width_ = 0, rows_ = 0;
    AlignedFloats own_, before_;
};

}  // namespace chainrule
