// The rows of frequent words as one of several threads has them: a copy of its own, brought together with the
// shared one now and then, so that processors do not take the same cache lines from each other at every step.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "aligned.hpp"

namespace chainrule {

// What part of a thread's steps the shared row takes. Few steps add up as those of one thread would: all of
// them. Many steps have brought each thread's copy the whole way already: the mean over the threads. Between
// the two, 1 / (1 + (threads − 1) s) where s = 1 − exp(−steps / 1024).
float part_of_steps(double steps, std::size_t threads);

class HotRows {
  public:
    HotRows() = default;
    // The first rows of `shared`, as many as there are parts.
    HotRows(const float* shared, std::size_t width, std::vector<float> parts);

    bool has(std::size_t row) const { return row < parts_.size(); }
    float* row(std::size_t row) { return own_.data() + row * width_; }

    // Give the shared rows their parts of what was learnt since the last time, and go on from them.
    void meet(float* shared, std::mutex& mutex);

  private:
    std::size_t width_ = 0;
    std::vector<float> parts_;
    AlignedFloats own_, before_;
};

}  // namespace chainrule
