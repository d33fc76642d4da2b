// The words of an ARPA file: numbered as its 1-grams list them, then laid out as models have them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ngram/vocabulary.hpp"

namespace chainrule {

class ArpaWords {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    // The number of a word that is listed; the same one again where it was.
    std::uint32_t list(std::string_view word);
    // Nothing is listed any more: the words get their ids, the unknown word 0, <s> and </s> the last two.
    void settle();

    std::uint32_t id_of_number(std::uint32_t number) const { return ids_[number]; }
    // kNone where it was not listed.
    std::uint32_t id(std::string_view word) const;

    std::uint32_t size() const { return static_cast<std::uint32_t>(names_.size()); }  // V
    std::uint32_t begin() const { return size() - 2; }
    bool is_empty() const;
    bool has_unknown() const { return has_unknown_; }
    bool has_end() const { return is_listed_[kEnd]; }
    std::vector<std::string> take_names() { return std::move(names_); }  // by id

  private:
    Vocabulary vocabulary_;  // its first three numbers are <unk>, <s>, </s>
    std::array<bool, 3> is_listed_{};
    bool has_unknown_ = false;
    std::vector<std::uint32_t> ids_;  // by number
    std::vector<std::string> names_;
};

inline std::uint32_t ArpaWords::id(std::string_view word) const {
    const std::uint32_t number = vocabulary_.find(word, Vocabulary::key(word));
    if (number == kUnknown && word != "<unk>") return kNone;
    return ids_[number];
}

// Why bytes are no UTF-8, in the words of Python; null where they are.
const char* utf8_fault(std::string_view bytes);

}  // namespace chainrule
