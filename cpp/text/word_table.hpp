// A hash table that numbers words in the order of first insertion.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace chainrule {

// A word and its lookup key: its bytes if there are at most eight, a hash otherwise.
struct Word {
    std::string_view letters;
    std::uint64_t key;

    static Word of(std::string_view letters);
};

class WordTable {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    WordTable();

    std::size_t size() const { return begins_.size() - 1; }
    std::string_view word(std::size_t number) const {
        return std::string_view(letters_).substr(begins_[number], begins_[number + 1] - begins_[number]);
    }

    std::size_t letters() const { return letters_.size(); }  // bytes of all words
    void reserve(std::size_t words, std::size_t letters);    // does not add slots
    void clear();                                            // keeps the memory

    std::uint32_t add(const Word& word);         // returns the number, a new one if necessary
    std::uint32_t find(const Word& word) const;  // returns the number, or kNone

  private:
    struct Slot {
        std::uint64_t key;
        std::uint32_t length;
        std::uint32_t number;  // + 1; 0: free
    };

    std::size_t home(std::uint64_t key) const { return (key * 0x9E3779B97F4A7C15ULL) >> shift_; }
    bool is(const Slot& slot, const Word& word) const {
        const std::size_t length = word.letters.size();
        return slot.key == word.key && slot.length == length &&
               (length <= 8 || this->word(slot.number - 1) == word.letters);
    }
    std::size_t slot_of(const Word& word) const {
        std::size_t i = home(word.key);
        while (slots_[i].number && !is(slots_[i], word)) i = (i + 1) & (slots_.size() - 1);
        return i;
    }
    std::uint32_t add_new(std::size_t slot, const Word& word);
    void grow();

    std::string letters_;  // bytes of all words, concatenated
    std::vector<std::uint64_t> begins_{0};
    int shift_;
    std::vector<Slot> slots_;  // open addressing
};

inline std::uint32_t WordTable::add(const Word& word) {
    const std::size_t i = slot_of(word);
    return slots_[i].number ? slots_[i].number - 1 : add_new(i, word);
}

inline std::uint32_t WordTable::find(const Word& word) const {
    return slots_[slot_of(word)].number - 1;  // 0 − 1 is kNone
}

}  // namespace chainrule
