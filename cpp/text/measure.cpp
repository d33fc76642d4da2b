#include "text/measure.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "text/scan.hpp"

namespace chainrule {

namespace {

constexpr std::uint64_t kOnes = 0x0101010101010101ULL, kHigh = kOnes << 7;

// The high bit of exactly those bytes of `x` that are `c`.
constexpr std::uint64_t all_bytes_that_are(char c, std::uint64_t x) {
    x ^= kOnes * static_cast<unsigned char>(c);
    return ~(((x & ~kHigh) + ~kHigh) | x) & kHigh;
}

// Eight counts, one for each place in eight bytes, that are added up before one of them is full.
class Tally {
  public:
    void add(std::uint64_t high_bits) { places_ += high_bits >> 7; }
    std::uint64_t sum() const {
        constexpr std::uint64_t even = 0x00FF00FF00FF00FFULL;
        return ((places_ & even) + (places_ >> 8 & even)) * 0x0001000100010001ULL >> 48;
    }

  private:
    std::uint64_t places_ = 0;
};

constexpr std::size_t kFull = 255;

// Counts as many whole eights of `text` as a tally holds; how many bytes that were.
std::size_t count_eights(std::string_view text, bool& is_cut_before, Extent& found) {
    Tally words, lines, letters, characters;
    std::uint64_t carried = is_cut_before ? 0x80 : 0;
    const std::size_t eights = std::min(text.size() / 8, kFull);
    for (std::size_t i = 0; i < eights; ++i) {
        std::uint64_t x;
        std::memcpy(&x, text.data() + 8 * i, 8);
        const std::uint64_t ends = all_bytes_that_are('\n', x);
        const std::uint64_t cuts = ends | all_bytes_that_are(' ', x) | all_bytes_that_are('\t', x);
        const std::uint64_t own = ~cuts & kHigh;
        const std::uint64_t continued = x & ~(x << 1) & kHigh;  // 10…: within a character
        words.add(own & (cuts << 8 | carried));
        lines.add(ends);
        letters.add(own);
        characters.add(own & ~continued);
        carried = cuts >> 56;
    }
    is_cut_before = carried;
    found.words += words.sum();
    found.lines += lines.sum();
    found.letters += letters.sum();
    found.characters += characters.sum();
    return 8 * eights;
}

}  // namespace

Extent extent_of(std::string_view lines) {
    Extent found;
    bool is_cut_before = true;
    std::size_t at = 0;
    if constexpr (std::endian::native == std::endian::little) {
        while (const std::size_t counted = count_eights(lines.substr(at), is_cut_before, found))
            at += counted;
    }
    for (; at < lines.size(); ++at) {
        const char c = lines[at];
        const bool is_letter = !is_cut(c);
        found.words += is_letter && is_cut_before;
        found.lines += c == '\n';
        found.letters += is_letter;
        found.characters += is_letter && (static_cast<unsigned char>(c) & 0xC0) != 0x80;
        is_cut_before = !is_letter;
    }
    return found;
}

}  // namespace chainrule
