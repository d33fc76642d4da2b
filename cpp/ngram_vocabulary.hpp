// Words and their numbers, in the order in which they were first added.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace chainrule {

inline constexpr std::uint32_t kUnknown = 0, kBegin = 1, kEnd = 2;  // <unk>, <s>, </s> come first

class Vocabulary {
  public:
    Vocabulary();

    std::size_t size() const { return begins_.size() - 1; }
    std::string_view word(std::size_t number) const {
        return std::string_view(letters_).substr(begins_[number], begins_[number + 1] - begins_[number]);
    }

    // What a word is looked up by: its own bytes where they are eight or fewer, a hash where they are more.
    static std::uint64_t key(std::string_view word) {
        std::uint64_t part = 0;
        if (word.size() > 8) return long_key(word);
        std::memcpy(&part, word.data(), word.size());
        return part;
    }

    std::uint32_t add(std::string_view word, std::uint64_t key);         // its number, a new one if need be
    std::uint32_t find(std::string_view word, std::uint64_t key) const;  // its number, or <unk>

  private:
    struct Slot {
        std::uint64_t key;
        std::uint32_t length;
        std::uint32_t number;  // + 1; 0: free
    };

    static std::uint64_t long_key(std::string_view word);
    std::size_t home(std::uint64_t key) const { return (key * 0x9E3779B97F4A7C15ULL) >> shift_; }
    bool is(const Slot& slot, std::string_view word, std::uint64_t key) const {
        return slot.key == key && slot.length == word.size() &&
               (word.size() <= 8 || this->word(slot.number - 1) == word);
    }
    std::size_t slot_of(std::string_view word, std::uint64_t key) const {
        std::size_t i = home(key);
        while (slots_[i].number && !is(slots_[i], word, key)) i = (i + 1) & (slots_.size() - 1);
        return i;
    }
    std::uint32_t add_new(std::size_t slot, std::string_view word, std::uint64_t key);
    void grow();

    std::string letters_;  // of all words, one behind the other
    std::vector<std::uint64_t> begins_{0};
    int shift_;
    std::vector<Slot> slots_;  // open addressing
};

inline std::uint32_t Vocabulary::add(std::string_view word, std::uint64_t key) {
    const std::size_t i = slot_of(word, key);
    return slots_[i].number ? slots_[i].number - 1 : add_new(i, word, key);
}

inline std::uint32_t Vocabulary::find(std::string_view word, std::uint64_t key) const {
    const std::uint32_t number = slots_[slot_of(word, key)].number;
    return number ? number - 1 : kUnknown;
}

}  // namespace chainrule
