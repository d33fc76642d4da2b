#include "vectors/pair_table.hpp"

#include <algorithm>
#include <bit>

namespace chainrule {

namespace {

constexpr std::size_t kFirst = 1 << 14;  // slots to begin with

int shift_of(std::size_t slots) { return 64 - std::countr_zero(slots); }

// The slot of this place or the free one for it; the end where there is none.
std::size_t find(const std::vector<Entry>& slots, std::uint64_t place, int shift) {
    std::size_t slot = place >> shift;
    while (slot < slots.size() && slots[slot].amount && slots[slot].place != place) ++slot;
    return slot;
}

}  // namespace

PairTable::PairTable(std::size_t most_slots) : most_(std::bit_floor(std::max(most_slots, kFewest))) {
    const std::size_t slots = std::min(most_, kFirst);
    shift_ = shift_of(slots);
    slots_.resize(slots + kTail);
}

bool PairTable::add(std::uint64_t place, std::uint64_t amount) {
    while (true) {
        const std::size_t slot = find(slots_, place, shift_);
        if (slot < slots_.size()) {
            Entry& entry = slots_[slot];
            if (entry.amount) {
                entry.amount += amount;
                return true;
            }
            if (used_ < (slots_.size() - kTail) / 8 * 5) {
                entry = {place, amount};
                ++used_;
                return true;
            }
        }
        if (!grow()) return false;
    }
}

bool PairTable::grow() {
    const std::size_t slots = (slots_.size() - kTail) * 2;
    if (slots > most_) return false;
    std::vector<Entry> wider(slots + kTail);
    const int shift = shift_of(slots);
    for (const Entry& entry : slots_) {
        if (!entry.amount) continue;
        const std::size_t slot = find(wider, entry.place, shift);
        if (slot == wider.size()) return false;
        wider[slot] = entry;
    }
    slots_.swap(wider);
    shift_ = shift;
    return true;
}

std::span<const Entry> PairTable::sorted() {
    std::size_t n = 0;
    for (const Entry& entry : slots_) {
        if (!entry.amount) continue;
        const Entry moved = entry;
        std::size_t at = n++;  // an entry is a few slots off at most
        for (; at > 0 && slots_[at - 1].place > moved.place; --at) slots_[at] = slots_[at - 1];
        slots_[at] = moved;
    }
    return {slots_.data(), n};
}

void PairTable::clear() {
    std::fill(slots_.begin(), slots_.end(), Entry{0, 0});
    used_ = 0;
}

}  // namespace chainrule
