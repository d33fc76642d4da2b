// Memory and disk requirements of external training, and how the memory is divided.
#pragma once

#include <cstddef>
#include <cstdint>

namespace chainrule {

// The parameters that requirements depend on.
struct TrainingSize {
    std::uint64_t tokens = 0;
    std::uint32_t vocabulary = 0;
    std::size_t order = 1;
    bool is_small = false, is_quantized = false;  // output format
};

// Threads, and buffer sizes of each in 32-bit numbers.
struct Budget {
    std::size_t threads;
    std::size_t sorted;   // records sorted at once
    std::size_t buckets;  // all bucket buffers; they are not needed while records are sorted
    std::size_t stream;   // the buffer of one file
};

// Divides `memory`, of which the process uses `in_use` already, among as many threads as fit, at most
// `threads`. Throws Error with the minimum if it does not suffice.
Budget plan_memory(std::uint64_t memory, std::uint64_t in_use, const TrainingSize& size, std::size_t threads);

// Number of threads (at most `threads`) that may write the model within `memory`.
std::size_t writer_threads_within(std::uint64_t memory, std::uint64_t in_use, const TrainingSize& size,
                                  std::size_t threads);

// Minimum memory for a process that uses `in_use` bytes already.
std::uint64_t minimum_memory(const TrainingSize& size, std::uint64_t in_use);

// Resident memory of the process in bytes.
std::uint64_t memory_in_use();

// Returns unused heap memory to the system, where supported.
void trim_heap();

// Makes the allocator return large blocks to the system as soon as they are freed, where supported. By
// default glibc keeps ever larger blocks in the heap, where small ones in use prevent their return.
void return_large_blocks();

// Bytes of all temporary files of a large text.
std::uint64_t disk_required(const TrainingSize& size);

}  // namespace chainrule
