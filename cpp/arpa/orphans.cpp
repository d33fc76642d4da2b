#include "arpa/orphans.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "arpa/model.hpp"

namespace chainrule {

namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFF;
constexpr float kNever = -std::numeric_limits<float>::infinity();

// The row of (context, word) in `level`, or kNone.
std::uint32_t find(const TableLevel& level, std::uint32_t context, std::uint32_t word) {
    const std::uint32_t* const from = level.word.begin() + level.first[context];
    const std::uint32_t* const to = level.word.begin() + level.first[context + 1];
    const std::uint32_t* const at = std::lower_bound(from, to, word);
    return at != to && *at == word ? static_cast<std::uint32_t>(at - level.word.begin()) : kNone;
}

// log p of the last word from the orders below, all of them whole: weight(h) p(w | h without its first word).
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

// An orphan, or the beginning of one, that is to be a row of the order in hand.
struct Wanted {
    std::uint64_t key;                  // (context row, word)
    const OrphanOrder::Values* values;  // null: not listed
    const std::uint32_t* ids;
};

bool comes_before(const Wanted& a, const Wanted& b) {
    if (a.key != b.key) return a.key < b.key;
    if (!a.values || !b.values) return a.values && !b.values;
    return a.values->line < b.values->line;
}

// One of each, in order: the listed one where there is one.
std::vector<Wanted> sorted_once(std::vector<Wanted> wanted) {
    std::sort(wanted.begin(), wanted.end(), comes_before);
    for (std::size_t i = 1; i < wanted.size(); ++i) {
        if (wanted[i].key == wanted[i - 1].key && wanted[i].values)
            throw ArpaFault(wanted[i].values->line,
                            "the same n-gram as in line " + std::to_string(wanted[i - 1].values->line));
    }
    const auto end = std::unique(wanted.begin(), wanted.end(),
                                 [](const Wanted& a, const Wanted& b) { return a.key == b.key; });
    wanted.erase(end, wanted.end());
    return wanted;
}

class Adoption {
  public:
    Adoption(std::vector<TableLevel>& levels, const std::vector<OrphanOrder>& orphans, std::uint32_t begin)
        : levels_(levels), orphans_(orphans), begin_(begin), rows_(orphans.size()) {}

    void run();

  private:
    std::vector<Wanted> wanted_at(std::size_t n) const;
    void merge(std::size_t n, const std::vector<Wanted>& wanted);

    std::vector<TableLevel>& levels_;
    const std::vector<OrphanOrder>& orphans_;
    std::uint32_t begin_;
    std::vector<std::vector<std::uint32_t>> rows_;  // by order: the row of each orphan's first words so far
    std::vector<std::uint32_t> moved_;              // by old row of the order below: its new one
};

std::vector<Wanted> Adoption::wanted_at(std::size_t n) const {
    std::vector<Wanted> wanted;
    for (std::size_t m = n; m <= orphans_.size(); ++m) {
        const OrphanOrder& some = orphans_[m - 1];
        for (std::size_t i = 0; i < some.values.size(); ++i) {
            const std::uint32_t* const ids = some.ids.data() + i * m;
            wanted.push_back(
                {RowIndex::key(rows_[m - 1][i], ids[n - 1]), m == n ? &some.values[i] : nullptr, ids});
        }
    }
    return sorted_once(std::move(wanted));
}

// The rows of order n and the wanted ones that are not among them.
void Adoption::merge(std::size_t n, const std::vector<Wanted>& wanted) {
    const TableLevel& old = levels_[n - 1];
    const bool is_top = n == levels_.size();
    const std::size_t contexts = levels_[n - 2].size(), most = old.size() + wanted.size();
    if (most >= kNone) throw Failure("the file lists more n-grams of one order than fit");
    std::vector<std::uint32_t> words, moved(old.size());
    std::vector<float> log_prob, log_backoff;
    Array<std::uint32_t> first(contexts + 1);
    std::fill(first.begin(), first.end(), 0);
    words.reserve(most), log_prob.reserve(most), log_backoff.reserve(is_top ? 0 : most);
    const auto put = [&](std::uint64_t key, float p, float weight) {
        const auto word = static_cast<std::uint32_t>(key);
        words.push_back(word);
        log_prob.push_back(word == begin_ ? kNever : p);
        if (!is_top) log_backoff.push_back(weight);
        ++first[(key >> 32) + 1];
    };
    const auto add = [&](const Wanted& one) {
        if (one.values) return put(one.key, one.values->log_prob, one.values->log_backoff);
        put(one.key, static_cast<float>(backed_off(levels_, {one.ids, n})), 0);
    };
    auto next = wanted.begin();
    for (std::uint32_t context = 0; context + 1 < old.first.size(); ++context) {
        for (std::uint32_t row = old.first[context]; row < old.first[context + 1]; ++row) {
            const std::uint64_t key = RowIndex::key(moved_[context], old.word[row]);
            for (; next != wanted.end() && next->key < key; ++next) add(*next);
            if (next != wanted.end() && next->key == key) ++next;  // it is there, and so not listed twice
            moved[row] = static_cast<std::uint32_t>(words.size());
            put(key, old.log_prob[row], is_top ? 0 : old.log_backoff[row]);
        }
    }
    for (; next != wanted.end(); ++next) add(*next);
    for (std::size_t c = 0; c < contexts; ++c) first[c + 1] += first[c];
    TableLevel made;
    const auto taken = [](const auto& values, auto& into) {
        into = std::decay_t<decltype(into)>(values.size());
        std::copy(values.begin(), values.end(), into.begin());
    };
    taken(words, made.word);
    taken(log_prob, made.log_prob);
    if (!is_top) taken(log_backoff, made.log_backoff);
    made.first = std::move(first);
    levels_[n - 1] = std::move(made);
    moved_ = std::move(moved);
}

void Adoption::run() {
    moved_.resize(levels_[0].size());
    for (std::uint32_t word = 0; word < moved_.size(); ++word) moved_[word] = word;
    for (std::size_t m = 1; m <= orphans_.size(); ++m) {
        for (std::size_t i = 0; i < orphans_[m - 1].values.size(); ++i)
            rows_[m - 1].push_back(orphans_[m - 1].ids[i * m]);
    }
    for (std::size_t n = 2; n <= levels_.size(); ++n) {
        merge(n, wanted_at(n));
        for (std::size_t m = n + 1; m <= orphans_.size(); ++m) {
            for (std::size_t i = 0; i < rows_[m - 1].size(); ++i)
                rows_[m - 1][i] = find(levels_[n - 1], rows_[m - 1][i], orphans_[m - 1].ids[i * m + n - 1]);
        }
    }
}

}  // namespace

OrphanOrder take_orphans(ListedOrder& listed, std::size_t n) {
    OrphanOrder made;
    if (listed.orphan_ids.empty()) return made;
    made.ids = std::move(listed.orphan_ids);
    made.values.reserve(made.ids.size() / n);
    std::uint64_t entry = 0;
    for (const auto& piece : listed.pieces) {
        for (const Listed& one : piece) {
            if (one.context == Listed::kOrphan)
                made.values.push_back({one.log_prob, one.log_backoff, listed.line_of(entry)});
            ++entry;
        }
    }
    return made;
}

void adopt_orphans(std::vector<TableLevel>& levels, const std::vector<OrphanOrder>& orphans,
                   std::uint32_t begin) {
    const bool is_needed = std::any_of(orphans.begin(), orphans.end(),
                                       [](const OrphanOrder& some) { return !some.values.empty(); });
    if (is_needed) Adoption(levels, orphans, begin).run();
}

}  // namespace chainrule
