// The vocabulary stored in three sections of a model file: words by id and ids by word, used in place without
// building anything when a model is opened.
//
// A slot of the hash table (open addressing, at most two thirds full) contains short words themselves, so
// that most lookups do not read the text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ngram/format/model_file.hpp"
#include "text/vocabulary.hpp"

namespace chainrule {

// Sections shared by all layouts.
inline constexpr std::uint32_t kVocabularyText = 1, kVocabularyOffsets = 2, kVocabularySlots = 3,
                               kByProbability = 4;

// Sections of the vocabulary. Of equal words the first is found.
std::vector<Section> vocabulary_sections(std::shared_ptr<const WordList> names);

struct VocabularySlot {
    std::uint64_t key;     // the bytes if there are at most eight, otherwise a hash
    std::uint32_t length;  // in bytes
    std::uint32_t number;  // + 1; 0: free
};

class StoredVocabulary {
  public:
    StoredVocabulary() = default;  // for a model without names
    explicit StoredVocabulary(std::shared_ptr<const ModelFile> file);

    std::size_t size() const { return size_; }  // 0, or the vocabulary size
    std::string_view name(std::uint32_t number) const;
    std::int64_t find(std::string_view name) const;  // −1 if absent
    // The same for a word of at most eight bytes, given little-endian and zero-padded.
    std::int64_t find_short(std::uint64_t bytes, std::uint32_t length) const {
        if (!size_) return -1;
        std::uint32_t at = home(bytes, slot_count_);
        for (std::uint32_t looked = 0; looked < slot_count_; ++looked) {
            file_->touch(slots_ + at, sizeof(VocabularySlot));
            const VocabularySlot& slot = slots_[at];
            if (slot.key == bytes && slot.length == length && slot.number - 1 < size_) return slot.number - 1;
            if (!slot.number) return -1;
            at = at + 1 == slot_count_ ? 0 : at + 1;
        }
        return -1;
    }
    WordList list() const;

  private:
    // Home slot of a key, by multiplication instead of division.
    static std::uint32_t home(std::uint64_t key, std::uint32_t slots) {
        const std::uint64_t mixed = (key ^ (key >> 32)) * 0x9E3779B97F4A7C15ULL;
        return static_cast<std::uint32_t>(((mixed >> 32) * slots) >> 32);
    }
    static std::vector<VocabularySlot> slots_of(const WordList& names);
    friend std::vector<Section> vocabulary_sections(std::shared_ptr<const WordList> names);

    std::shared_ptr<const ModelFile> file_;
    std::size_t size_ = 0;
    std::string_view letters_;
    const std::uint64_t* begins_ = nullptr;
    const VocabularySlot* slots_ = nullptr;
    std::uint32_t slot_count_ = 0;
};

}  // namespace chainrule
