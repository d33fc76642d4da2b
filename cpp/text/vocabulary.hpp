// The vocabulary of a word tokenizer: words by id and ids by word, without Python objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "text/word_table.hpp"

namespace chainrule {

// Words by id, concatenated in memory.
class WordList {
  public:
    void add(std::string_view name) {
        letters_ += name;
        begins_.push_back(letters_.size());
    }
    void reserve(std::size_t names, std::size_t letters) {
        begins_.reserve(names + 1);
        letters_.reserve(letters);
    }
    std::size_t size() const { return begins_.size() - 1; }
    std::string_view name(std::size_t number) const {
        return std::string_view(letters_).substr(begins_[number], begins_[number + 1] - begins_[number]);
    }
    std::string_view letters() const { return letters_; }
    const std::vector<std::uint64_t>& begins() const { return begins_; }

  private:
    std::string letters_;
    std::vector<std::uint64_t> begins_{0};
};

// The names of all ids, the last `controls` of which (`<s>`, `</s>`) are not words of a text: they are not
// found. Takes 32 bytes per word besides its letters: an offset, and one and a half slots of a hash table.
class WordVocabulary {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    // Throws ArgumentError if a word occurs twice.
    WordVocabulary(std::shared_ptr<const WordList> names, std::size_t controls);

    std::size_t size() const { return names_->size(); }
    std::size_t words() const { return words_; }  // without control symbols
    std::string_view name(std::size_t id) const { return names_->name(id); }
    const std::shared_ptr<const WordList>& names() const { return names_; }

    std::uint32_t find(const Word& word) const {
        std::size_t at = home(word.key);
        for (;; at = at + 1 == slots_.size() ? 0 : at + 1) {
            const Slot& slot = slots_[at];
            if (!slot.number) return kNone;
            if (slot.key == word.key && slot.length == word.letters.size() &&
                (slot.length <= 8 || name(slot.number - 1) == word.letters))
                return slot.number - 1;
        }
    }

  private:
    struct Slot {
        std::uint64_t key;
        std::uint32_t length;
        std::uint32_t number;  // + 1; 0: free
    };
    std::size_t home(std::uint64_t key) const {
        const std::uint64_t mixed = (key ^ (key >> 32)) * 0x9E3779B97F4A7C15ULL;
        return static_cast<std::size_t>(((mixed >> 32) * slots_.size()) >> 32);
    }

    std::shared_ptr<const WordList> names_;
    std::size_t words_;
    UninitializedBuffer<Slot> slots_;
};

// Words as entries of a JSON object with their ids as values, in the form of `tokenizer.json`: one entry per
// line, indented by six spaces.

// Appends the entries of the ids [from, to); a comma follows each but the last of the vocabulary.
void append_json_entries(const WordVocabulary& vocabulary, std::size_t from, std::size_t to,
                         std::string& out);

// Reads entries written by append_json_entries, adds the names of `controls` and returns the vocabulary.
// Returns nothing if the entries differ from that form in any byte, or if a word occurs twice or is a control
// symbol.
std::optional<WordVocabulary> read_json_entries(std::string_view entries,
                                                const std::vector<std::string>& controls);

// Words of a text with their counts, in any order, for the selection of a vocabulary.
class CountedWords {
  public:
    using Visit = std::function<void(std::string_view word, std::uint64_t count)>;
    using ForEach = std::function<void(const Visit&)>;

    // `for_each` visits each word once and may be called repeatedly; words in `excluded` are not counted.
    CountedWords(ForEach for_each, std::vector<std::string> excluded);

    std::uint64_t types() const { return types_; }  // number of different words
    std::uint64_t occurrences() const;
    std::uint64_t excluded_count(std::size_t i) const { return excluded_counts_.at(i); }
    void for_each(const Visit& visit) const;              // words that are not excluded
    std::uint64_t types_from(std::uint64_t count) const;  // number of words with at least this count

    // The `most` most frequent words, by descending count, ties by bytes, behind the names `first` and before
    // the names `last`.
    WordList select(std::uint64_t most, const std::vector<std::string>& first,
                    const std::vector<std::string>& last) const;
    // The same with the counts, and without other names.
    std::pair<WordList, std::vector<std::uint64_t>> sorted() const;

  private:
    struct Selected {
        WordList words;
        std::vector<std::uint64_t> counts;
        std::vector<std::uint32_t> order;
    };
    Selected most_frequent(std::uint64_t most) const;
    bool is_excluded(std::string_view word) const;

    ForEach for_each_;
    std::vector<std::string> excluded_;
    std::vector<std::uint64_t> excluded_counts_;
    std::uint64_t types_ = 0;
    // Number of words and of their bytes by count, by descending count.
    struct Bin {
        std::uint64_t count, words, letters;
    };
    std::vector<Bin> bins_;
};

}  // namespace chainrule
