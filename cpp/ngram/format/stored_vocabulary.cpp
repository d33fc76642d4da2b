#include "ngram/format/stored_vocabulary.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "text/word_table.hpp"

namespace chainrule {

namespace {

std::uint32_t slot_count(std::uint64_t names) { return static_cast<std::uint32_t>(names + names / 2 + 1); }

}  // namespace

std::vector<VocabularySlot> StoredVocabulary::slots_of(const WordList& names) {
    std::vector<VocabularySlot> slots(slot_count(names.size()), VocabularySlot{0, 0, 0});
    for (std::size_t i = 0; i < names.size(); ++i) {
        const std::string_view name = names.name(i);
        if (name.size() > 0xFFFFFFFF) throw ArgumentError("a word of more than 4 GB cannot be written");
        const std::uint64_t key = Word::of(name).key;
        std::size_t slot = home(key, static_cast<std::uint32_t>(slots.size()));
        while (slots[slot].number) slot = slot + 1 == slots.size() ? 0 : slot + 1;
        slots[slot] = {key, static_cast<std::uint32_t>(name.size()), static_cast<std::uint32_t>(i + 1)};
    }
    return slots;
}

std::vector<Section> vocabulary_sections(std::shared_ptr<const WordList> names) {
    if (names->size() > kMaxWords) throw ArgumentError("a vocabulary has fewer than 2^31 words");
    Section letters, begins, slots;
    letters.id = kVocabularyText;
    letters.size = names->letters().size();
    letters.fill = [names](std::uint64_t from, std::uint64_t size, char* into) {
        std::memcpy(into, names->letters().data() + from, size);
    };
    begins.id = kVocabularyOffsets;
    begins.size = 8 * names->begins().size();
    begins.fill = [names](std::uint64_t from, std::uint64_t size, char* into) {
        std::memcpy(into, reinterpret_cast<const char*>(names->begins().data()) + from, size);
    };
    const auto table = std::make_shared<std::vector<VocabularySlot>>();
    slots.id = kVocabularySlots;
    slots.size = sizeof(VocabularySlot) * slot_count(names->size());
    slots.prepare = [names, table] { *table = StoredVocabulary::slots_of(*names); };
    slots.fill = [table](std::uint64_t from, std::uint64_t size, char* into) {
        std::memcpy(into, reinterpret_cast<const char*>(table->data()) + from, size);
    };
    slots.done = [table] { std::vector<VocabularySlot>().swap(*table); };
    return {letters, begins, slots};
}

StoredVocabulary::StoredVocabulary(std::shared_ptr<const ModelFile> file) : file_(std::move(file)) {
    const auto letters = file_->section(kVocabularyText), begins = file_->section(kVocabularyOffsets),
               slots = file_->section(kVocabularySlots);
    if (begins.empty()) return;
    size_ = file_->metadata().model.vocabulary;
    slot_count_ = slot_count(size_);
    if (begins.size() != 8 * (size_ + 1) || slots.size() != sizeof(VocabularySlot) * slot_count_)
        file_->fail("its words do not fit its header");
    letters_ = {letters.data(), letters.size()};
    begins_ = reinterpret_cast<const std::uint64_t*>(begins.data());
    slots_ = reinterpret_cast<const VocabularySlot*>(slots.data());
}

std::string_view StoredVocabulary::name(std::uint32_t number) const {
    if (number >= size_)
        throw ArgumentError("there is no word with the id " + std::to_string(number) + " in the model");
    file_->touch(begins_ + number, 16);
    const std::uint64_t from = begins_[number], to = begins_[number + 1];
    if (from > to || to > letters_.size()) file_->fail("a word lies outside its section");
    file_->touch(letters_.data() + from, to - from);
    return letters_.substr(from, to - from);
}

std::int64_t StoredVocabulary::find(std::string_view name) const {
    const std::uint64_t key = Word::of(name).key;
    if (name.size() <= 8) return find_short(key, static_cast<std::uint32_t>(name.size()));
    if (!size_) return -1;
    std::uint32_t at = home(key, slot_count_);
    for (std::uint32_t looked = 0; looked < slot_count_; ++looked) {
        file_->touch(slots_ + at, sizeof(VocabularySlot));
        const VocabularySlot& slot = slots_[at];
        if (!slot.number) return -1;
        if (slot.key == key && slot.length == name.size() && slot.number <= size_ &&
            this->name(slot.number - 1) == name)
            return slot.number - 1;
        at = at + 1 == slot_count_ ? 0 : at + 1;
    }
    return -1;
}

WordList StoredVocabulary::list() const {
    WordList names;
    for (std::uint32_t i = 0; i < size_; ++i) names.add(name(i));
    return names;
}

}  // namespace chainrule
