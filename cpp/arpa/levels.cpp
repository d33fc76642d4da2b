#include "arpa/levels.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "arpa/model.hpp"
#include "base/parallel.hpp"

namespace chainrule {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

struct Row {
    std::uint32_t word;
    float log_prob, log_backoff;
};

// The lines of the first two entries of this n-gram.
[[noreturn]] void refuse_repeated(const ListedOrder& listed, std::uint32_t context, std::uint32_t word) {
    std::uint64_t entry = 0, first = 0;
    bool is_found = false;
    for (const auto& piece : listed.pieces) {
        for (const Listed& one : piece) {
            if (one.context == context && one.word == word) {
                if (is_found)
                    throw ArpaFault(listed.line_of(entry),
                                    "the same n-gram as in line " + std::to_string(listed.line_of(first)));
                is_found = true;
                first = entry;
            }
            ++entry;
        }
    }
    throw Failure("an n-gram is there twice");  // not reached: the caller saw two
}

// first[c + 1] becomes where the rows of context c begin; returns how many rows there are.
std::uint32_t count_contexts(const ListedOrder& listed, std::size_t threads, Array<std::uint32_t>& first) {
    std::fill(first.begin(), first.end(), 0);
    in_parallel(threads, [&](std::size_t t) {
        const std::size_t to = part_begin(listed.pieces.size(), t + 1, threads);
        for (std::size_t i = part_begin(listed.pieces.size(), t, threads); i < to; ++i) {
            for (const Listed& one : listed.pieces[i]) {
                if (one.context == Listed::kOrphan) continue;
                std::atomic_ref(first[one.context + 1]).fetch_add(1, std::memory_order_relaxed);
            }
        }
    });
    std::uint32_t sum = 0;
    for (std::size_t c = 1; c < first.size(); ++c) sum += std::exchange(first[c], sum);
    return sum;
}

// Contexts [from, to): their rows in the order of their words. The first context with a word twice, or kNone.
std::uint32_t settle_rows(Row* rows, const Array<std::uint32_t>& first, std::size_t from, std::size_t to,
                          std::uint32_t begin, SortedOrder& made) {
    const auto by_word = [](const Row& a, const Row& b) { return a.word < b.word; };
    for (std::size_t c = from; c < to; ++c) {
        Row* const here = rows + first[c];
        Row* const end = rows + first[c + 1];
        if (!std::is_sorted(here, end, by_word)) std::sort(here, end, by_word);
        for (Row* row = here; row < end; ++row) {
            if (row > here && row->word == row[-1].word) return static_cast<std::uint32_t>(c);
            const auto i = static_cast<std::size_t>(row - rows);
            made.level.word[i] = row->word;
            made.level.log_prob[i] = row->word == begin ? kNever : row->log_prob;
            if (made.keys.size() == 0) continue;
            made.level.log_backoff[i] = row->log_backoff;
            made.keys[i] = RowIndex::key(static_cast<std::uint32_t>(c), row->word);
        }
    }
    return RowIndex::kNone;
}

void refuse_first_repeated(const ListedOrder& listed, const Row* rows, const Array<std::uint32_t>& first,
                           const std::vector<std::uint32_t>& repeated) {
    for (const std::uint32_t context : repeated) {
        if (context == RowIndex::kNone) continue;
        for (std::size_t i = first[context] + 1; i < first[context + 1]; ++i) {
            if (rows[i].word == rows[i - 1].word) refuse_repeated(listed, context, rows[i].word);
        }
    }
}

}  // namespace

std::uint64_t ListedOrder::line_of(std::uint64_t entry) const {
    const auto after = std::upper_bound(runs.begin(), runs.end(), entry,
                                        [](std::uint64_t e, const LineRun& run) { return e < run.entry; });
    return after[-1].line + (entry - after[-1].entry);
}

RowIndex::RowIndex(Array<std::uint64_t> keys, std::size_t threads) : keys_(std::move(keys)) {
    std::size_t size = 2;
    while (size < keys_.size() + keys_.size() / 2) size *= 2, --shift_;
    mask_ = size - 1;
    slots_ = Array<std::uint32_t>(size, Access::scattered);
    std::fill(slots_.begin(), slots_.end(), kNone);
    constexpr std::size_t ahead = 16;
    // Which of several rows gets the nearer slot is a matter of chance; what is found is not.
    in_parallel(threads, [&](std::size_t t) {
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

SortedOrder sort_listed(const ListedOrder& listed, std::size_t contexts, std::uint32_t begin, bool is_top,
                        std::size_t threads) {
    if (listed.size >= RowIndex::kNone) throw Failure("the file lists more n-grams of one order than fit");
    SortedOrder made;
    Array<std::uint32_t> first(contexts + 1, Access::scattered);
    const std::uint32_t size = count_contexts(listed, threads, first);
    made.level.word = Array<std::uint32_t>(size);
    made.level.log_prob = Array<float>(size);
    if (!is_top) {
        made.level.log_backoff = Array<float>(size);
        made.keys = Array<std::uint64_t>(size);
    }
    Array<Row> rows(size, Access::scattered);
    // Each thread has contexts of its own, about as many rows of them as the others, and looks at every
    // entry.
    std::vector<std::size_t> share(threads + 1, contexts);
    share[0] = 0;
    for (std::size_t t = 1; t < threads; ++t) {
        const auto wanted = static_cast<std::uint32_t>(part_begin(size, t, threads));
        const std::uint32_t* const at = std::lower_bound(first.begin() + 1, first.end(), wanted);
        share[t] = static_cast<std::size_t>(at - first.begin()) - 1;
    }
    std::vector<std::uint32_t> repeated(threads, RowIndex::kNone);
    in_parallel(threads, [&](std::size_t t) {
        for (const auto& piece : listed.pieces) {
            for (const Listed& one : piece) {
                if (one.context < share[t] || one.context >= share[t + 1]) continue;
                rows[first[one.context + 1]++] = {one.word, one.log_prob, one.log_backoff};
            }
        }
    });
    // By now first[c + 1] is where the rows of context c end.
    in_parallel(threads, [&](std::size_t t) {
        repeated[t] = settle_rows(rows.data(), first, share[t], share[t + 1], begin, made);
    });
    refuse_first_repeated(listed, rows.data(), first, repeated);
    made.level.first = std::move(first);
    return made;
}

TableLevel unigrams_of(const ListedOrder& listed, std::uint32_t vocabulary, bool is_top) {
    TableLevel made;
    made.word = Array<std::uint32_t>(vocabulary);
    made.first = Array<std::uint32_t>(2);
    made.first[0] = 0;
    made.first[1] = vocabulary;
    made.log_prob = Array<float>(vocabulary);
    for (std::uint32_t word = 0; word < vocabulary; ++word) made.word[word] = word;
    std::fill(made.log_prob.begin(), made.log_prob.end(), kNever);
    if (!is_top) {
        made.log_backoff = Array<float>(vocabulary);
        std::fill(made.log_backoff.begin(), made.log_backoff.end(), 0.0F);
    }
    std::vector<bool> is_there(vocabulary);
    std::uint32_t repeated = vocabulary;
    for (const auto& piece : listed.pieces) {
        for (const Listed& one : piece) {
            if (is_there[one.word]) repeated = std::min(repeated, one.word);
            is_there[one.word] = true;
            if (one.word != vocabulary - 2) made.log_prob[one.word] = one.log_prob;  // <s> is never predicted
            if (!is_top) made.log_backoff[one.word] = one.log_backoff;
        }
    }
    if (repeated < vocabulary) refuse_repeated(listed, 0, repeated);
    return made;
}

}  // namespace chainrule
