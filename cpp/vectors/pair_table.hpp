// The pairs of words met so far and what they add up to, in the order of a mixed form of the pair.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chainrule {

// splitmix64's finalizer (Steele et al. 2014) of pair + offset: a bijection, so that pairs in the order of
// their mixed form are shuffled and no two share a place.
inline std::uint64_t mixed(std::uint64_t pair, std::uint64_t offset) {
    std::uint64_t z = pair + offset;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

inline std::uint64_t unmixed(std::uint64_t z, std::uint64_t offset) {
    z = (z ^ (z >> 31) ^ (z >> 62)) * 0x319642B2D24D8EC3ULL;
    z = (z ^ (z >> 27) ^ (z >> 54)) * 0x96DE1B173F119089ULL;
    return (z ^ (z >> 30) ^ (z >> 60)) - offset;
}

struct Entry {
    std::uint64_t place;   // the mixed pair
    std::uint64_t amount;  // 0: a free slot
};

// Open addressing by the first bits of the place, never round the end, so that slots are nearly in order.
class PairTable {
  public:
    static constexpr std::size_t kFewest = 64;  // slots

    explicit PairTable(std::size_t most_slots);

    void prefetch(std::uint64_t place) const { __builtin_prefetch(&slots_[place >> shift_], 1); }
    bool add(std::uint64_t place, std::uint64_t amount);  // false where it is full: `sorted`, `clear`, again
    std::span<const Entry> sorted();  // all of it; nothing can be added after that but by `clear`
    void clear();

  private:
    static constexpr std::size_t kTail = 64;  // slots behind the last

    bool grow();

    std::size_t most_;
    int shift_;  // 64 − log2 of the slots without the tail
    std::size_t used_ = 0;
    std::vector<Entry> slots_;
};

}  // namespace chainrule
