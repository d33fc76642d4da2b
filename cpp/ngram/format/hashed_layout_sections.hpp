// What the reader and the writer of the layout "fast" must agree on.
#pragma once

#include <cstdint>

namespace chainrule {

inline constexpr std::uint32_t kFastRows = 0x1000, kFastIndex = 0x2000;  // + the order

// Of an index: four slots may be read from anywhere in it.
inline std::uint64_t fast_index_bytes(std::uint64_t rows) { return 4 * rows + 8; }

// Of c continuations in order of their words, where the directory is asked for `word`.
inline std::uint32_t directory_slot(std::uint32_t word, std::uint32_t c, std::uint32_t vocabulary) {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(word) * c / vocabulary);
}

}  // namespace chainrule
