#include "hot_rows.hpp"

#include <algorithm>

namespace chainrule {

namespace {

constexpr std::size_t kHottest = 64;      // rows of every meeting
constexpr std::size_t kRows = 4096;       // that each of two threads copies, at most …
constexpr std::size_t kBytes = 32 << 20;  // … and all threads together
constexpr std::size_t kThreads = 8;       // more of them would wait for each other's meetings
constexpr std::uint64_t kWords = 5000;    // that all threads together read between two meetings of each

}  // namespace

std::size_t copied_rows(std::size_t threads, std::size_t width) {
    if (threads < 2 || threads > kThreads) return 0;
    return std::min(4 * kRows / (threads * threads), kBytes / (2 * threads * width * sizeof(float)));
}

std::uint64_t words_between_meetings(std::size_t threads) { return kWords / threads; }

std::size_t rows_of_meeting(std::uint64_t meeting) {
    std::size_t rows = kHottest;
    for (; rows < kRows && meeting % 4 == 0; meeting /= 4) rows *= 4;
    return rows;
}

HotRows::HotRows(const float* shared, std::size_t width, std::size_t rows)
    : width_(width), rows_(rows), own_(rows * width), before_(rows * width) {
    std::copy_n(shared, own_.size(), own_.data());
    std::copy_n(shared, own_.size(), before_.data());
}

void HotRows::meet(float* shared, std::size_t rows, std::mutex& mutex) {
    const std::lock_guard<std::mutex> lock(mutex);
    float* own = own_.data();
    float* before = before_.data();
    for (std::size_t i = 0; i < std::min(rows, rows_) * width_; ++i) {
        shared[i] += own[i] - before[i];
        own[i] = before[i] = shared[i];
    }
}

}  // namespace chainrule
