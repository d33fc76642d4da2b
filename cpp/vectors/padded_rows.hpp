// Rows of floats in the layout of the kernels. Must not be included by the kernels' own files: shared inline
// functions would be compiled for one instruction set and run on another.
#pragma once

#include <cstddef>

#include "vectors/kernels/kernels.hpp"

namespace chainrule {

inline std::size_t padded(std::size_t numbers) { return (numbers + kLanes - 1) / kLanes * kLanes; }

// Prefetches a row for writing, so that the cache line is owned exclusively: after a read prefetch, a row
// shared by several threads would be fetched again at the first write. GCC emits this instruction only for
// targets that have it; 64-bit processors without it ignore it.
inline void prefetch(const float* row, std::size_t width) {
    for (std::size_t i = 0; i < width; i += kLanes) {
#if defined(__x86_64__) && defined(__GNUC__)
        asm volatile("prefetchw %0" : : "m"(row[i]));
#else
        __builtin_prefetch(row + i, 1);
#endif
    }
}

}  // namespace chainrule
