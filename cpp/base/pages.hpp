// Memory for tables: on a cache line and, where it is much, straight from the system, in large pages if
// wanted.
#pragma once

#include <cstddef>

namespace chainrule {

// How the memory will be written and read. Scattered access touches another page nearly each time, and of
// pages of 2 MB the processor can remember all it needs. Where access is in order small pages do as well, and
// the system has them at hand: it may have to make a large one first, which was seen to take ten times as
// long.
enum class Access { in_order, scattered };

// Null where there is none; never null for 0 bytes.
void* take_memory(std::size_t bytes, Access access) noexcept;
void give_memory_back(void* memory, std::size_t bytes) noexcept;  // `bytes` as they were asked for

}  // namespace chainrule
