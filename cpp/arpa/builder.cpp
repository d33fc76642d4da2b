#include "arpa/builder.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/parallel.hpp"

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
    constexpr std::string_view other = "<UNK>";  // accepted as unknown word if <unk> is not listed
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
        // The second byte is restricted where overlong forms, surrogates or code points above 10FFFF
        // would begin.
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

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

struct Row {
    std::uint32_t word;
    float log_prob, log_backoff;
};

// Reports the first two lines that list this n-gram.
[[noreturn]] void refuse_repeated(const ArpaOrder& listed, std::uint32_t context, std::uint32_t word) {
    std::uint64_t entry = 0, first = 0;
    bool is_found = false;
    for (const auto& piece : listed.pieces) {
        for (const ArpaEntry& one : piece) {
            if (one.context == context && one.word == word) {
                if (is_found)
                    throw ArpaParseError(listed.line_of(entry), "the same n-gram as in line " +
                                                                    std::to_string(listed.line_of(first)));
                is_found = true;
                first = entry;
            }
            ++entry;
        }
    }
    throw Error("an n-gram is there twice");  // unreachable: the caller found a duplicate
}

// Sets first[c + 1] to the first row of context c; returns the number of rows.
std::uint32_t count_contexts(const ArpaOrder& listed, std::size_t threads,
                             UninitializedBuffer<std::uint32_t>& first) {
    std::fill(first.begin(), first.end(), 0);
    parallel_for(threads, [&](std::size_t t) {
        const std::size_t to = part_begin(listed.pieces.size(), t + 1, threads);
        for (std::size_t i = part_begin(listed.pieces.size(), t, threads); i < to; ++i) {
            for (const ArpaEntry& one : listed.pieces[i]) {
                if (one.context == ArpaEntry::kOrphan) continue;
                std::atomic_ref(first[one.context + 1]).fetch_add(1, std::memory_order_relaxed);
            }
        }
    });
    std::uint32_t sum = 0;
    for (std::size_t c = 1; c < first.size(); ++c) sum += std::exchange(first[c], sum);
    return sum;
}

// Sorts the rows of contexts [from, to) by word; returns the first context with a repeated word, or kNone.
std::uint32_t settle_rows(Row* rows, const UninitializedBuffer<std::uint32_t>& first, std::size_t from,
                          std::size_t to, std::uint32_t begin, SortedOrder& result) {
    const auto by_word = [](const Row& a, const Row& b) { return a.word < b.word; };
    for (std::size_t c = from; c < to; ++c) {
        Row* const begin_row = rows + first[c];
        Row* const end = rows + first[c + 1];
        if (!std::is_sorted(begin_row, end, by_word)) std::sort(begin_row, end, by_word);
        for (Row* row = begin_row; row < end; ++row) {
            if (row > begin_row && row->word == row[-1].word) return static_cast<std::uint32_t>(c);
            const auto i = static_cast<std::size_t>(row - rows);
            result.level.word[i] = row->word;
            result.level.log_prob[i] = row->word == begin ? kNever : row->log_prob;
            if (result.keys.size() == 0) continue;
            result.level.log_backoff[i] = row->log_backoff;
            result.keys[i] = RowIndex::key(static_cast<std::uint32_t>(c), row->word);
        }
    }
    return RowIndex::kNone;
}

void refuse_first_repeated(const ArpaOrder& listed, const Row* rows,
                           const UninitializedBuffer<std::uint32_t>& first,
                           const std::vector<std::uint32_t>& repeated) {
    for (const std::uint32_t context : repeated) {
        if (context == RowIndex::kNone) continue;
        for (std::size_t i = first[context] + 1; i < first[context + 1]; ++i) {
            if (rows[i].word == rows[i - 1].word) refuse_repeated(listed, context, rows[i].word);
        }
    }
}

}  // namespace

std::uint64_t ArpaOrder::line_of(std::uint64_t entry) const {
    const auto after = std::upper_bound(runs.begin(), runs.end(), entry,
                                        [](std::uint64_t e, const LineRun& run) { return e < run.entry; });
    return after[-1].line + (entry - after[-1].entry);
}

RowIndex::RowIndex(UninitializedBuffer<std::uint64_t> keys, std::size_t threads) : keys_(std::move(keys)) {
    std::size_t size = 2;
    while (size < keys_.size() + keys_.size() / 2) size *= 2, --shift_;
    mask_ = size - 1;
    slots_ = UninitializedBuffer<std::uint32_t>(size, Access::scattered);
    std::fill(slots_.begin(), slots_.end(), kNone);
    constexpr std::size_t ahead = 16;
    // The slot order depends on thread timing; the lookup result does not.
    parallel_for(threads, [&](std::size_t t) {
        const std::size_t to = part_begin(keys_.size(), t + 1, threads);
        for (std::size_t row = part_begin(keys_.size(), t, threads); row < to; ++row) {
            if (row + ahead < to) prefetch(&slots_[home(keys_[row + ahead])]);
            for (std::size_t i = home(keys_[row]);; i = (i + 1) & mask_) {
                std::uint32_t free = kNone;
                if (std::atomic_ref(slots_[i]).compare_exchange_strong(free, static_cast<std::uint32_t>(row)))
                    break;
            }
        }
    });
}

SortedOrder sort_entries(const ArpaOrder& listed, std::size_t contexts, std::uint32_t begin, bool is_top,
                         std::size_t threads) {
    if (listed.size >= RowIndex::kNone) throw Error("the file lists more n-grams of one order than fit");
    SortedOrder result;
    UninitializedBuffer<std::uint32_t> first(contexts + 1, Access::scattered);
    const std::uint32_t size = count_contexts(listed, threads, first);
    result.level.word = UninitializedBuffer<std::uint32_t>(size);
    result.level.log_prob = UninitializedBuffer<float>(size);
    if (!is_top) {
        result.level.log_backoff = UninitializedBuffer<float>(size);
        result.keys = UninitializedBuffer<std::uint64_t>(size);
    }
    UninitializedBuffer<Row> rows(size, Access::scattered);
    // Each thread owns a range of contexts with about the same number of rows, and scans every entry.
    std::vector<std::size_t> share(threads + 1, contexts);
    share[0] = 0;
    for (std::size_t t = 1; t < threads; ++t) {
        const auto missing = static_cast<std::uint32_t>(part_begin(size, t, threads));
        const std::uint32_t* const at = std::lower_bound(first.begin() + 1, first.end(), missing);
        share[t] = static_cast<std::size_t>(at - first.begin()) - 1;
    }
    std::vector<std::uint32_t> repeated(threads, RowIndex::kNone);
    parallel_for(threads, [&](std::size_t t) {
        for (const auto& piece : listed.pieces) {
            for (const ArpaEntry& one : piece) {
                if (one.context < share[t] || one.context >= share[t + 1]) continue;
                rows[first[one.context + 1]++] = {one.word, one.log_prob, one.log_backoff};
            }
        }
    });
    // Now first[c + 1] is the end of the rows of context c.
    parallel_for(threads, [&](std::size_t t) {
        repeated[t] = settle_rows(rows.data(), first, share[t], share[t + 1], begin, result);
    });
    refuse_first_repeated(listed, rows.data(), first, repeated);
    result.level.first = std::move(first);
    return result;
}

TableLevel unigrams_of(const ArpaOrder& listed, std::uint32_t vocabulary, bool is_top) {
    TableLevel result;
    result.word = UninitializedBuffer<std::uint32_t>(vocabulary);
    result.first = UninitializedBuffer<std::uint32_t>(2);
    result.first[0] = 0;
    result.first[1] = vocabulary;
    result.log_prob = UninitializedBuffer<float>(vocabulary);
    for (std::uint32_t word = 0; word < vocabulary; ++word) result.word[word] = word;
    std::fill(result.log_prob.begin(), result.log_prob.end(), kNever);
    if (!is_top) {
        result.log_backoff = UninitializedBuffer<float>(vocabulary);
        std::fill(result.log_backoff.begin(), result.log_backoff.end(), 0.0F);
    }
    std::vector<bool> is_present(vocabulary);
    std::uint32_t repeated = vocabulary;
    for (const auto& piece : listed.pieces) {
        for (const ArpaEntry& one : piece) {
            if (is_present[one.word]) repeated = std::min(repeated, one.word);
            is_present[one.word] = true;
            if (one.word != vocabulary - 2)
                result.log_prob[one.word] = one.log_prob;  // <s> is never predicted
            if (!is_top) result.log_backoff[one.word] = one.log_backoff;
        }
    }
    if (repeated < vocabulary) refuse_repeated(listed, 0, repeated);
    return result;
}

namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFF;

// Row of (context, word) in `level`, or kNone.
std::uint32_t find(const TableLevel& level, std::uint32_t context, std::uint32_t word) {
    const std::uint32_t* const from = level.word.begin() + level.first[context];
    const std::uint32_t* const to = level.word.begin() + level.first[context + 1];
    const std::uint32_t* const at = std::lower_bound(from, to, word);
    return at != to && *at == word ? static_cast<std::uint32_t>(at - level.word.begin()) : kNone;
}

// Backed-off log p of the last word from the complete lower orders: weight(h) p(w | h′).
double backed_off(const std::vector<TableLevel>& levels, std::span<const std::uint32_t> ids) {
    const std::size_t n = ids.size();
    const std::uint32_t word = ids[n - 1];
    double log_p = levels[0].log_prob[word];
    for (std::size_t m = 1; m < n; ++m) {  // contexts of m words
        std::uint32_t context = ids[n - 1 - m];
        for (std::size_t k = 1; k < m && context != kNone; ++k)
            context = find(levels[k], context, ids[n - 1 - m + k]);
        if (context == kNone) continue;
        log_p += levels[m - 1].log_backoff[context];
        if (m == n - 1) break;
        const std::uint32_t row = find(levels[m], context, word);
        if (row != kNone) log_p = levels[m].log_prob[row];
    }
    return std::min(log_p, 0.0);
}

// A row to insert: an orphan, or a prefix of one.
struct MissingRow {
    std::uint64_t key;                  // (context row, word)
    const OrphanOrder::Values* values;  // null: not listed
    const std::uint32_t* ids;
};

bool comes_before(const MissingRow& a, const MissingRow& b) {
    if (a.key != b.key) return a.key < b.key;
    if (!a.values || !b.values) return a.values && !b.values;
    return a.values->line < b.values->line;
}

// Sorts and removes duplicates, preferring listed rows.
std::vector<MissingRow> sorted_once(std::vector<MissingRow> missing) {
    std::sort(missing.begin(), missing.end(), comes_before);
    for (std::size_t i = 1; i < missing.size(); ++i) {
        if (missing[i].key == missing[i - 1].key && missing[i].values)
            throw ArpaParseError(missing[i].values->line,
                                 "the same n-gram as in line " + std::to_string(missing[i - 1].values->line));
    }
    const auto end = std::unique(missing.begin(), missing.end(),
                                 [](const MissingRow& a, const MissingRow& b) { return a.key == b.key; });
    missing.erase(end, missing.end());
    return missing;
}

class OrphanInsertion {
  public:
    OrphanInsertion(std::vector<TableLevel>& levels, const std::vector<OrphanOrder>& orphans,
                    std::uint32_t begin)
        : levels_(levels), orphans_(orphans), begin_(begin), rows_(orphans.size()) {}

    void run();

  private:
    std::vector<MissingRow> missing_rows(std::size_t n) const;
    void merge(std::size_t n, const std::vector<MissingRow>& missing);

    std::vector<TableLevel>& levels_;
    const std::vector<OrphanOrder>& orphans_;
    std::uint32_t begin_;
    std::vector<std::vector<std::uint32_t>>
        rows_;                          // by order: row of the longest known prefix of each orphan
    std::vector<std::uint32_t> moved_;  // new row of each old row of the order below
};

std::vector<MissingRow> OrphanInsertion::missing_rows(std::size_t n) const {
    std::vector<MissingRow> missing;
    for (std::size_t m = n; m <= orphans_.size(); ++m) {
        const OrphanOrder& orphan_order = orphans_[m - 1];
        for (std::size_t i = 0; i < orphan_order.values.size(); ++i) {
            const std::uint32_t* const ids = orphan_order.ids.data() + i * m;
            missing.push_back({RowIndex::key(rows_[m - 1][i], ids[n - 1]),
                               m == n ? &orphan_order.values[i] : nullptr, ids});
        }
    }
    return sorted_once(std::move(missing));
}

// Merges the existing rows of order n with the missing ones.
void OrphanInsertion::merge(std::size_t n, const std::vector<MissingRow>& missing) {
    const TableLevel& old = levels_[n - 1];
    const bool is_top = n == levels_.size();
    const std::size_t contexts = levels_[n - 2].size(), most = old.size() + missing.size();
    if (most >= kNone) throw Error("the file lists more n-grams of one order than fit");
    std::vector<std::uint32_t> words, moved(old.size());
    std::vector<float> log_prob, log_backoff;
    UninitializedBuffer<std::uint32_t> first(contexts + 1);
    std::fill(first.begin(), first.end(), 0);
    words.reserve(most), log_prob.reserve(most), log_backoff.reserve(is_top ? 0 : most);
    const auto put = [&](std::uint64_t key, float p, float weight) {
        const auto word = static_cast<std::uint32_t>(key);
        words.push_back(word);
        log_prob.push_back(word == begin_ ? kNever : p);
        if (!is_top) log_backoff.push_back(weight);
        ++first[(key >> 32) + 1];
    };
    const auto add = [&](const MissingRow& one) {
        if (one.values) return put(one.key, one.values->log_prob, one.values->log_backoff);
        put(one.key, static_cast<float>(backed_off(levels_, {one.ids, n})), 0);
    };
    auto next = missing.begin();
    for (std::uint32_t context = 0; context + 1 < old.first.size(); ++context) {
        for (std::uint32_t row = old.first[context]; row < old.first[context + 1]; ++row) {
            const std::uint64_t key = RowIndex::key(moved_[context], old.word[row]);
            for (; next != missing.end() && next->key < key; ++next) add(*next);
            if (next != missing.end() && next->key == key) ++next;  // already present: no duplicate
            moved[row] = static_cast<std::uint32_t>(words.size());
            put(key, old.log_prob[row], is_top ? 0 : old.log_backoff[row]);
        }
    }
    for (; next != missing.end(); ++next) add(*next);
    for (std::size_t c = 0; c < contexts; ++c) first[c + 1] += first[c];
    TableLevel result;
    const auto copy_into = [](const auto& values, auto& into) {
        into = std::decay_t<decltype(into)>(values.size());
        std::copy(values.begin(), values.end(), into.begin());
    };
    copy_into(words, result.word);
    copy_into(log_prob, result.log_prob);
    if (!is_top) copy_into(log_backoff, result.log_backoff);
    result.first = std::move(first);
    levels_[n - 1] = std::move(result);
    moved_ = std::move(moved);
}

void OrphanInsertion::run() {
    moved_.resize(levels_[0].size());
    for (std::uint32_t word = 0; word < moved_.size(); ++word) moved_[word] = word;
    for (std::size_t m = 1; m <= orphans_.size(); ++m) {
        for (std::size_t i = 0; i < orphans_[m - 1].values.size(); ++i)
            rows_[m - 1].push_back(orphans_[m - 1].ids[i * m]);
    }
    for (std::size_t n = 2; n <= levels_.size(); ++n) {
        merge(n, missing_rows(n));
        for (std::size_t m = n + 1; m <= orphans_.size(); ++m) {
            for (std::size_t i = 0; i < rows_[m - 1].size(); ++i)
                rows_[m - 1][i] = find(levels_[n - 1], rows_[m - 1][i], orphans_[m - 1].ids[i * m + n - 1]);
        }
    }
}

}  // namespace

OrphanOrder take_orphans(ArpaOrder& listed, std::size_t n) {
    OrphanOrder result;
    if (listed.orphan_ids.empty()) return result;
    result.ids = std::move(listed.orphan_ids);
    result.values.reserve(result.ids.size() / n);
    std::uint64_t entry = 0;
    for (const auto& piece : listed.pieces) {
        for (const ArpaEntry& one : piece) {
            if (one.context == ArpaEntry::kOrphan)
                result.values.push_back({one.log_prob, one.log_backoff, listed.line_of(entry)});
            ++entry;
        }
    }
    return result;
}

void insert_orphans(std::vector<TableLevel>& levels, const std::vector<OrphanOrder>& orphans,
                    std::uint32_t begin) {
    const bool is_needed = std::any_of(orphans.begin(), orphans.end(), [](const OrphanOrder& orphan_order) {
        return !orphan_order.values.empty();
    });
    if (is_needed) OrphanInsertion(levels, orphans, begin).run();
}

}  // namespace chainrule
