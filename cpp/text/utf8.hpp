// Strict UTF-8 validation (no surrogates, no overlong forms, nothing above U+10FFFF) and character counting.
#pragma once

#include <cstddef>
#include <string_view>

namespace chainrule {

bool is_utf8(std::string_view text);

// Number of characters of valid UTF-8: bytes that are not continuation bytes.
inline std::size_t count_characters(std::string_view text) {
    std::size_t characters = 0;
    for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    return characters;
}

}  // namespace chainrule
