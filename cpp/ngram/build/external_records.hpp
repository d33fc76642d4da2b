// What training within a limit of memory keeps in files: rows that are being counted, logarithms.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/logarithm.hpp"
#include "base/temp_file.hpp"

namespace chainrule {

// A row of one order while it is counted and estimated, as five numbers in a file.
struct CountedRow {
    static constexpr std::size_t kWidth = 5;

    std::uint32_t word = 0, count = 0;
    std::uint32_t adjusted = 0;  // what Kneser–Ney takes for the count
    double shorter = 0;          // p of its suffix

    void write(SpillWriter& rows) const {
        std::uint32_t* const to = rows.next(kWidth);
        to[0] = word;
        to[1] = count;
        to[2] = adjusted;
        std::memcpy(to + 3, &shorter, sizeof shorter);
    }
    static CountedRow read(SpillReader& rows) {
        const std::uint32_t* const from = rows.next(kWidth);
        CountedRow row{from[0], from[1], from[2]};
        std::memcpy(&row.shorter, from + 3, sizeof row.shorter);
        return row;
    }
};

// What follows the words of a record from order 1 on: the row of its suffix, its last word, the suffix's p.
inline constexpr std::size_t kTail = 4;

// Logarithms of probabilities in single precision: they are gathered, since they are faster by the hundred.
class LogWriter {
  public:
    LogWriter(SpillFile& file, std::size_t buffered) : writer_(file, std::max(buffered, kGathered)) {}

    void push(double p) {
        gathered_[size_++] = p;
        if (size_ == kGathered) gather();
    }
    void flush() {
        gather();
        writer_.flush();
    }

  private:
    static constexpr std::size_t kGathered = 512;

    void gather() {
        std::array<float, kGathered> logs;
        for (std::size_t i = 0; i < kGathered; ++i) logs[i] = static_cast<float>(logarithm(gathered_[i]));
        std::memcpy(writer_.next(size_), logs.data(), size_ * sizeof(float));
        size_ = 0;
    }

    SpillWriter writer_;
    std::size_t size_ = 0;
    std::array<double, kGathered> gathered_{};
};

}  // namespace chainrule
