// What is UTF-8 and how many characters it holds, by the letter of the standard: no surrogates, nothing above
// U+10FFFF, nothing written longer than need be.
#pragma once

#include <cstddef>
#include <string_view>

namespace chainrule {

bool is_utf8(std::string_view text);

// Of text that is UTF-8: every byte but those that continue a character begins one.
inline std::size_t count_characters(std::string_view text) {
    std::size_t characters = 0;
    for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    return characters;
}

}  // namespace chainrule
