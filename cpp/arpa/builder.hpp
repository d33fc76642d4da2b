// From ARPA entries to back-off tables: vocabulary, sorting, missing contexts.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.hpp"
#include "base/error.hpp"
#include "ngram/tables.hpp"
#include "ngram/vocabulary.hpp"

namespace chainrule {

struct ArpaModel {
    // Words by id: <unk>, the others in the order of the file, <s>, </s>. <unk>, <s> and </s> are present
    // even if not listed.
    std::vector<std::string> names;
    std::vector<TableLevel> levels;
    bool has_unknown = false;  // false: the unknown word has probability 0
    bool has_end = false;      // false: no line can end

    ArpaModel() = default;
    ArpaModel(ArpaModel&&) = default;  // not copyable
    ArpaModel& operator=(ArpaModel&&) = default;

    ModelMetadata metadata() const {
        ModelMetadata result;
        result.vocabulary = static_cast<std::uint32_t>(names.size());
        result.begin = result.vocabulary - 2;
        result.end = result.vocabulary - 1;
        result.unknown = 0;
        result.is_closed = !has_unknown;
        return result;
    }
};

// A parse error; line 0 is the file as a whole. `shown` are raw bytes of the file, which the caller must
// escape for display.
struct ArpaParseError : Error {
    ArpaParseError(std::uint64_t line, const std::string& before, const std::string& shown = {},
                   const std::string& after = {})
        : Error((line ? "line " + std::to_string(line) + ": " : "") + before + shown + after),
          line(line),
          before(before),
          shown(shown),
          after(after) {}

    std::uint64_t line;
    std::string before, shown, after;
};

// Vocabulary of an ARPA file: numbered in the order of the 1-grams, then mapped to model ids.

class ArpaWords {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    // Adds a listed word and returns its number, the same one if it was listed before.
    std::uint32_t list(std::string_view word);
    // Assigns ids once all words are listed: <unk> 0, <s> and </s> the last two.
    void settle();

    std::uint32_t id_of_number(std::uint32_t number) const { return ids_[number]; }
    // kNone if the word was not listed.
    std::uint32_t id(std::string_view word) const;

    std::uint32_t size() const { return static_cast<std::uint32_t>(names_.size()); }  // vocabulary size
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

// The reason why bytes are not UTF-8, worded like Python's decoder; null if they are.
const char* utf8_fault(std::string_view bytes);

// One entry of the file. If its context is not listed, it is an orphan: `context` is kOrphan, and `word` its
// number among the orphans of its order.
struct ArpaEntry {
    static constexpr std::uint32_t kOrphan = 0xFFFFFFFF;

    std::uint32_t context;  // row one order down
    std::uint32_t word;
    float log_prob, log_backoff;
};

// Maps entries to line numbers: from `entry` on, both count up by one.
struct LineRun {
    std::uint64_t entry, line;
};

// All entries of one order, in file order.
struct ArpaOrder {
    std::vector<std::vector<ArpaEntry>> pieces;
    std::uint64_t size = 0;
    std::vector<LineRun> runs;
    std::vector<std::uint32_t> orphan_ids;  // n by n

    std::uint64_t line_of(std::uint64_t entry) const;
};

// Hash index from (context row, word) to the row of one order; open addressing.
class RowIndex {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    static std::uint64_t key(std::uint32_t context, std::uint32_t word) {
        return std::uint64_t{context} << 32 | word;
    }
    RowIndex() = default;
    RowIndex(UninitializedBuffer<std::uint64_t> keys, std::size_t threads);  // by row

    // For batches of keys call each stage for all keys before the next, to hide memory latency.
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

    UninitializedBuffer<std::uint64_t> keys_;
    UninitializedBuffer<std::uint32_t> slots_;  // rows; kNone: free
    std::size_t mask_ = 0;
    int shift_ = 63;
};

struct SortedOrder {
    TableLevel level;
    UninitializedBuffer<std::uint64_t> keys;  // by row, for a RowIndex; empty at the highest order
};

// Sorts entries by context row (of `contexts` rows), then by word; orphans are skipped. `begin` is never
// predicted. Throws ArpaParseError for a repeated n-gram.
SortedOrder sort_entries(const ArpaOrder& listed, std::size_t contexts, std::uint32_t begin, bool is_top,
                         std::size_t threads);

// The same for 1-grams, whose words are ids already; words not listed have probability 0.
TableLevel unigrams_of(const ArpaOrder& listed, std::uint32_t vocabulary, bool is_top);

// Orphans: n-grams whose contexts the file omits, as some pruning tools do. The contexts are inserted with
// the backed-off probability and the weight 1.

struct OrphanOrder {
    struct Values {
        float log_prob, log_backoff;
        std::uint64_t line;
    };
    std::vector<std::uint32_t> ids;  // n by n
    std::vector<Values> values;
};

OrphanOrder take_orphans(ArpaOrder& listed, std::size_t n);

// Inserts the orphans of all orders ([k] is order k + 1) and their contexts into the tables and renumbers the
// rows. Throws ArpaParseError for a repeated orphan.
void insert_orphans(std::vector<TableLevel>& levels, const std::vector<OrphanOrder>& orphans,
                    std::uint32_t begin);

}  // namespace chainrule
