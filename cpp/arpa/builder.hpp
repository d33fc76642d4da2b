// What an ARPA file holds once it is read, and what is said where it cannot be.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.hpp"
#include "base/error.hpp"
#include "base/prefetch.hpp"
#include "ngram/tables.hpp"
#include "ngram/vocabulary.hpp"

namespace chainrule {

struct ArpaModel {
    // By number: the unknown word, the others as the file lists them, <s>, </s>. The first and the last two
    // are there whether the file lists them or not.
    std::vector<std::string> names;
    std::vector<TableLevel> levels;
    bool has_unknown = false;  // false: the unknown word has probability 0
    bool has_end = false;      // false: no line can end

    ArpaModel() = default;
    ArpaModel(ArpaModel&&) = default;  // and no copies
    ArpaModel& operator=(ArpaModel&&) = default;

    ModelFacts facts() const {
        ModelFacts made;
        made.vocabulary = static_cast<std::uint32_t>(names.size());
        made.begin = made.vocabulary - 2;
        made.end = made.vocabulary - 1;
        made.unknown = 0;
        made.is_closed = !has_unknown;
        return made;
    }
};

// Line 0: the file as a whole. `shown` are bytes of the file, of any kind; whoever shows the message makes
// them fit to be read.
struct ArpaFault : Failure {
    ArpaFault(std::uint64_t line, const std::string& before, const std::string& shown = {},
              const std::string& after = {})
        : Failure((line ? "line " + std::to_string(line) + ": " : "") + before + shown + after),
          line(line),
          before(before),
          shown(shown),
          after(after) {}

    std::uint64_t line;
    std::string before, shown, after;
};

// The words of an ARPA file: numbered as its 1-grams list them, then laid out as models have them.

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

// The n-grams of an ARPA file, order by order: as they are listed in any order, then sorted into tables, and
// found again as the contexts of longer ones.

// One entry of a file. An orphan is one whose context the file does not list: `context` is kOrphan, and
// `word` its number among the orphans of its order.
struct Listed {
    static constexpr std::uint32_t kOrphan = 0xFFFFFFFF;

    std::uint32_t context;  // row one order down
    std::uint32_t word;
    float log_prob, log_backoff;
};

// From this entry on, lines count up by one with the entries.
struct LineRun {
    std::uint64_t entry, line;
};

// All entries of one order, in the order of the file.
struct ListedOrder {
    std::vector<std::vector<Listed>> pieces;
    std::uint64_t size = 0;
    std::vector<LineRun> runs;
    std::vector<std::uint32_t> orphan_ids;  // n by n

    std::uint64_t line_of(std::uint64_t entry) const;
};

// Where the rows of one order are, by (context row, word): open addressing.
class RowIndex {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    static std::uint64_t key(std::uint32_t context, std::uint32_t word) {
        return std::uint64_t{context} << 32 | word;
    }
    RowIndex() = default;
    RowIndex(Array<std::uint64_t> keys, std::size_t threads);  // by row

    // To be called in this turn for many keys, each stage for all of them: memory is asked for ahead.
    void prefetch_slot(std::uint64_t key) const { prefetch(&slots_[home(key)]); }
    void prefetch_key(std::uint64_t key) const {
        const std::uint32_t row = slots_[home(key)];
        if (row != kNone) prefetch(&keys_[row]);
    }
    std::uint32_t find(std::uint64_t key) const {
        for (std::size_t i = home(key);; i = (i + 1) & mask_) {
            const std::uint32_t row = slots_[i];
            if (row == kNone || keys_[row] == key) return row;
        }
    }

  private:
    std::size_t home(std::uint64_t key) const {
        key = (key ^ key >> 32) * 0x9E3779B97F4A7C15ULL;
        return (key ^ key >> 29) * 0xBF58476D1CE4E5B9ULL >> shift_;
    }

    Array<std::uint64_t> keys_;
    Array<std::uint32_t> slots_;  // rows; kNone: free
    std::size_t mask_ = 0;
    int shift_ = 63;
};

struct SortedOrder {
    TableLevel level;
    Array<std::uint64_t> keys;  // by row, for a RowIndex; empty at the highest order
};

// What is listed in the order of its context rows, of which there are `contexts`, then of words; orphans are
// left out. `begin` is never predicted. An n-gram that is there twice is an ArpaFault.
SortedOrder sort_listed(const ListedOrder& listed, std::size_t contexts, std::uint32_t begin, bool is_top,
                        std::size_t threads);

// The same of 1-grams, whose words are ids already; those not listed have probability 0.
TableLevel unigrams_of(const ListedOrder& listed, std::uint32_t vocabulary, bool is_top);

// N-grams whose contexts an ARPA file leaves out, as pruning does with some tools: the contexts are added,
// each with the probability that backing off gives and the weight 1.

// The orphans of one order, as listed.
struct OrphanOrder {
    struct Values {
        float log_prob, log_backoff;
        std::uint64_t line;
    };
    std::vector<std::uint32_t> ids;  // n by n
    std::vector<Values> values;
};

OrphanOrder take_orphans(ListedOrder& listed, std::size_t n);

// Puts the orphans of all orders ([k] is of order k + 1) and what they need into the tables, whose rows are
// numbered anew. Throws ArpaFault where an orphan is there twice.
void adopt_orphans(std::vector<TableLevel>& levels, const std::vector<OrphanOrder>& orphans,
                   std::uint32_t begin);

}  // namespace chainrule
