#include "ngram_vocabulary.hpp"

#include "failure.hpp"
#include "word_hash.hpp"

namespace chainrule {

namespace {

constexpr int kFirstBits = 14;

}  // namespace

Vocabulary::Vocabulary() : shift_(64 - kFirstBits), slots_(std::size_t{1} << kFirstBits) {
    for (const char* word : {"<unk>", "<s>", "</s>"}) add(word, key(word));
}

std::uint64_t Vocabulary::long_key(std::string_view word) { return word_hash(word, 0); }

std::uint32_t Vocabulary::add_new(std::size_t slot, std::string_view word, std::uint64_t key) {
    if (size() >= 0x7FFFFFFF) throw Failure("the text has more different words than can be numbered");
    if (word.size() > 0xFFFFFFFF) throw Failure("a word of the text is longer than 4 GB");
    const auto number = static_cast<std::uint32_t>(size());
    letters_.append(word);
    begins_.push_back(letters_.size());
    slots_[slot] = {key, static_cast<std::uint32_t>(word.size()), number + 1};
    if (size() * 2 > slots_.size()) grow();
    return number;
}

void Vocabulary::grow() {
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
