// Rows of floats as the kernels take them. Not for the kernels' own files: what they share would be compiled
// for one processor and run on another.
#pragma once

#include <cstddef>

#include "vectors/kernels/kernels.hpp"

namespace chainrule {

inline std::size_t padded(std::size_t numbers) { return (numbers + kLanes - 1) / kLanes * kLanes; }

// Asks for a row that will soon be written, so that it comes as one processor's own: asked for to be read
// only, a row that several threads learn would be sent for again at the first write. GCC has this instruction
// only where it is told to compile for it, and processors of 64 bits that do not know it pass it over.
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
