// How much memory and disk a training within a limit takes, and how the memory is shared out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace chainrule {

// What the needs of a training depend on.
struct Size {
    std::uint64_t tokens = 0;
    std::uint32_t vocabulary = 0;
    std::size_t order = 1;
    bool is_small = false, is_quantized = false;  // how the model will be written, after all else
};

// In numbers of 32 bits.
struct Budget {
    std::size_t sorted;  // records that are sorted at once
    std::size_t ahead;   // as many, or 0: records that another thread sorts meanwhile
    std::size_t dealt;   // buffers of what is dealt, all together
    std::size_t stream;  // the buffer of one file
};

// Of `memory`, of which the process has `in_use` already. Failure where it does not suffice, with the least
// that does. Several threads change nothing else than how it is shared out.
Budget budget_within(std::uint64_t memory, std::uint64_t in_use, const Size& size, std::size_t threads);

// How many threads, up to `threads`, may write the model within `memory`.
std::size_t writers_within(std::uint64_t memory, std::uint64_t in_use, const Size& size, std::size_t threads);

// The least memory that suffices for a process that has `in_use` bytes already.
std::uint64_t least_memory(const Size& size, std::uint64_t in_use);

// Bytes of memory that the process has now.
std::uint64_t memory_in_use();

// Gives the system what the heap keeps without need, where that can be done.
void give_unused_back();

// Bytes of all temporary files at the worst moment, at most: as if no n-gram came twice.
std::uint64_t disk_needed(const Size& size);

}  // namespace chainrule
