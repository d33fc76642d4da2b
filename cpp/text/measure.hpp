// How much text there is, eight bytes at a time: what must be known before the first id is written.
#pragma once

#include <cstdint>
#include <string_view>

namespace chainrule {

struct Extent {
    std::uint64_t words = 0, lines = 0;
    std::uint64_t letters = 0, characters = 0;  // of words: bytes, and characters

    std::uint64_t tokens() const { return words + lines; }
};

// Of lines with an LF after each.
Extent extent_of(std::string_view lines);

}  // namespace chainrule
