// A growing vocabulary: ids in the order of first occurrence, after <unk>, <s> and </s>.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/word_table.hpp"

namespace chainrule {

inline constexpr std::uint32_t kUnknown = 0, kBegin = 1, kEnd = 2;

class Vocabulary {
  public:
    Vocabulary() {
        for (const char* word : {"<unk>", "<s>", "</s>"}) add(word, key(word));
    }

    std::size_t size() const { return table_.size(); }
    std::string_view word(std::size_t number) const { return table_.word(number); }

    // Lookup key of a word.
    static std::uint64_t key(std::string_view word) { return Word::of(word).key; }

    // Returns the id of a word, assigning a new one if needed.
    std::uint32_t add(std::string_view word, std::uint64_t key) { return table_.add({word, key}); }

    // Returns the id of a word, or that of <unk>.
    std::uint32_t find(std::string_view word, std::uint64_t key) const {
        const std::uint32_t number = table_.find({word, key});
        return number == WordTable::kNone ? kUnknown : number;
    }

  private:
    WordTable table_;
};

}  // namespace chainrule
