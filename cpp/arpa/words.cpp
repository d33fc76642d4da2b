#include "arpa/words.hpp"

namespace chainrule {

std::uint32_t ArpaWords::list(std::string_view word) {
    const std::uint32_t number = vocabulary_.add(word, Vocabulary::key(word));
    if (number < is_listed_.size()) is_listed_[number] = true;
    return number;
}

bool ArpaWords::is_empty() const {
    return vocabulary_.size() == is_listed_.size() && !is_listed_[0] && !is_listed_[1] && !is_listed_[2];
}

void ArpaWords::settle() {
    const auto numbers = static_cast<std::uint32_t>(vocabulary_.size());
    ids_.assign(numbers, kNone);
    constexpr std::string_view other = "<UNK>";  // unknown where the usual spelling is not listed
    std::uint32_t unknown = is_listed_[kUnknown] ? kUnknown : vocabulary_.find(other, Vocabulary::key(other));
    has_unknown_ = is_listed_[kUnknown] || unknown != kUnknown;
    names_.reserve(numbers);
    names_.emplace_back(vocabulary_.word(unknown));
    if (has_unknown_) ids_[unknown] = 0;
    for (std::uint32_t number = 3; number < numbers; ++number) {
        if (number == unknown) continue;
        ids_[number] = size();
        names_.emplace_back(vocabulary_.word(number));
    }
    for (const std::uint32_t number : {kBegin, kEnd}) {
        if (is_listed_[number]) ids_[number] = size();
        names_.emplace_back(vocabulary_.word(number));
    }
}

const char* utf8_fault(std::string_view bytes) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    for (std::size_t i = 0; i < bytes.size();) {
        const unsigned head = byte(i++);
        if (head < 0x80) continue;
        if (head < 0xC2 || head > 0xF4) return "invalid start byte";
        const int following = head < 0xE0 ? 1 : head < 0xF0 ? 2 : 3;
        // What stands second is held to less than 80 … BF where longer forms, surrogates or numbers above
        // 10FFFF would begin.
        unsigned least = 0x80, most = 0xBF;
        if (head == 0xE0) least = 0xA0;
        if (head == 0xED) most = 0x9F;
        if (head == 0xF0) least = 0x90;
        if (head == 0xF4) most = 0x8F;
        for (int k = 0; k < following; ++k, ++i) {
            if (i == bytes.size()) return "unexpected end of data";
            if (byte(i) < least || byte(i) > most) return "invalid continuation byte";
            least = 0x80, most = 0xBF;
        }
    }
    return nullptr;
}

}  // namespace chainrule
