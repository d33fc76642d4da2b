#include "text/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace chainrule {

namespace {

// Length of the character at `at`, 0 if invalid. The range of the second byte depends on the first (The
// Unicode Standard, table 3-7); the others are 80…BF.
std::size_t character_at(const unsigned char* at, std::size_t left) {
    const unsigned first = at[0];
    if (first < 0x80) return 1;
    if (first < 0xC2 || first > 0xF4) return 0;
    const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (left < length) return 0;
    unsigned least = 0x80, most = 0xBF;
    if (first == 0xE0) least = 0xA0;  // overlong forms
    if (first == 0xED) most = 0x9F;   // surrogates
    if (first == 0xF0) least = 0x90;
    if (first == 0xF4) most = 0x8F;  // above U+10FFFF
    if (at[1] < least || at[1] > most) return 0;
    for (std::size_t i = 2; i < length; ++i) {
        if ((at[i] & 0xC0) != 0x80) return 0;
    }
    return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
    const auto* at = reinterpret_cast<const unsigned char*>(text.data());
    const auto* const stop = at + text.size();
    while (at < stop) {
        // Skips runs of ASCII eight bytes at a time.
        if (stop - at >= 8) {
            std::uint64_t eight;
            std::memcpy(&eight, at, 8);
            if (!(eight & 0x8080808080808080ULL)) {
                at += 8;
                continue;
            }
        }
        const std::size_t length = character_at(at, static_cast<std::size_t>(stop - at));
        if (!length) return false;
        at += length;
    }
    return true;
}

}  // namespace chainrule
