// Rows of floats as the kernels take them. Not for the kernels' own files: what they share would be compiled
// for one processor and run on another.
#pragma once

#include <cstddef>

#include "kernels.hpp"

namespace chainrule {

inline std::size_t padded(std::size_t numbers) { return (numbers + kLanes - 1) / kLanes * kLanes; }

inline void prefetch(const float* row, std::size_t width) {
    for (std::size_t i = 0; i < width; i += kLanes) __builtin_prefetch(row + i, 1);
}

}  // namespace chainrule
