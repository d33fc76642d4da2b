#include "text/word_table.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace chainrule {

namespace {

constexpr int kFirstBits = 14;

// A hash of a word of more than eight bytes: of each eight, and of the last eight, mixed by multiplication.
std::uint64_t word_hash(std::string_view word) {
    std::uint64_t h = word.size();
    const auto mix = [&](std::size_t at) {
        std::uint64_t part;
        std::memcpy(&part, word.data() + at, 8);
        h = (h ^ part) * 0xFF51AFD7ED558CCDULL;
        h ^= h >> 32;
    };
    for (std::size_t at = 0; at + 8 < word.size(); at += 8) mix(at);
    mix(word.size() - 8);
    return h;
}

}  // namespace

Word Word::of(std::string_view letters) {
    std::uint64_t key = 0;
    if (letters.size() > 8) return {letters, word_hash(letters)};
    if (!letters.empty()) std::memcpy(&key, letters.data(), letters.size());
    return {letters, key};
}

WordTable::WordTable() : shift_(64 - kFirstBits), slots_(std::size_t{1} << kFirstBits) {}

void WordTable::reserve(std::size_t words, std::size_t letters) {
    begins_.reserve(words + 1);
    letters_.reserve(letters);
}

void WordTable::clear() {
    letters_.clear();
    begins_.resize(1);
    std::fill(slots_.begin(), slots_.end(), Slot{0, 0, 0});
}

std::uint32_t WordTable::add_new(std::size_t slot, const Word& word) {
    if (size() >= 0x7FFFFFFF) throw Error("the text has more different words than can be numbered");
    if (word.letters.size() > 0xFFFFFFFF) throw Error("a word of the text is longer than 4 GB");
    const auto number = static_cast<std::uint32_t>(size());
    letters_.append(word.letters);
    begins_.push_back(letters_.size());
    slots_[slot] = {word.key, static_cast<std::uint32_t>(word.letters.size()), number + 1};
    if (size() * 4 > slots_.size() * 3) grow();  // 16 bytes per slot: at most three quarters full
    return number;
}

void WordTable::grow() {
    std::vector<Slot> wider(slots_.size() * 2);
    wider.swap(slots_);
    --shift_;
    for (const Slot& slot : wider) {
        if (!slot.number) continue;
        std::size_t i = home(slot.key);
        while (slots_[i].number) i = (i + 1) & (slots_.size() - 1);
        slots_[i] = slot;
    }
}

}  // namespace chainrule
