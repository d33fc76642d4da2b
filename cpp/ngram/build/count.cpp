#include "ngram/build/count.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/buffer.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"

namespace chainrule {

namespace {

// One bit of a position marks the first occurrence of a row (kIsFirst).
constexpr std::uint64_t kMaxTokens = (std::uint64_t{1} << 31) - 1;

constexpr std::uint32_t kNone = 0xFFFFFFFF;
constexpr std::uint32_t kIsFirst = 0x80000000;  // flag bit of a position: first occurrence of its row
constexpr std::size_t kAhead = 48;              // prefetch distance in occurrences

// An occurrence of an n-gram in the text.
struct Occurrence {
    std::uint32_t position;  // position of the first word, temporarily with kIsFirst
    // Successively the row of the suffix, the own row, the left word.
    std::uint32_t value;
};

// At the highest order positions are no longer needed and only rows are sorted.
std::uint32_t& value_of(Occurrence& occurrence) { return occurrence.value; }
std::uint32_t& value_of(std::uint32_t& row) { return row; }
void set(Occurrence& occurrence, std::uint32_t position, std::uint32_t row) { occurrence = {position, row}; }
void set(std::uint32_t& value, std::uint32_t, std::uint32_t row) { value = row; }

// Per-thread statistics of a word as left neighbour.
struct Left {
    std::uint32_t last_row = kNone;  // the last row that this word preceded
    std::uint32_t rows = 0;          // number of rows
    std::uint32_t times = 0;         // number of occurrences; later the next write position
};

class Counter {
  public:
    Counter(Tokens tokens, std::size_t threads)
        : tokens_(std::move(tokens)),
          threads_(threads),
          lefts_(threads, std::vector<Left>(tokens_.vocabulary)),
          now_(tokens_.ids.size(), Access::scattered),
          next_(tokens_.ids.size(), Access::scattered) {}

    Counts count(std::size_t order);

  private:
    // A range of first words, processed by one thread.
    struct Share {
        std::uint32_t from, to;
    };
    // Offsets of rows and occurrences by first word, and the end.
    struct Offsets {
        std::vector<std::uint32_t> rows, occurrences;
    };

    Level unigrams(bool is_top);
    Level extend(const Level& below, bool is_top);
    Offsets compute_offsets();
    void balanced_ranges();
    template <class Item>
    Level make_level(Item* items, const Level& below);
    template <class Item>
    void number_rows(Share share, Item* items, const Level& below, Level& level);
    template <class Item>
    void find_contexts(Share share, Item* items, const Level& below, Level& level) const;
    void find_lefts(Share share, std::vector<Left>& lefts, Level& level);
    template <class Item>
    void scatter(Share share, std::vector<Left>& lefts, Item* into);
    std::uint32_t row_at(std::size_t position) const;

    Tokens tokens_;
    std::size_t threads_;
    std::vector<std::vector<Left>> lefts_;  // [thread][word]
    std::vector<Share> shares_;
    UninitializedBuffer<Occurrence> now_, next_;  // of the current order and of the next
    Offsets at_, at_below_;                       // of the current order and of the one below
    std::size_t order_ = 1;
    std::uint32_t last_row_below_ = kNone;  // stream only: row of the last n-gram of the text
};

Counts Counter::count(std::size_t order) {
    Counts counts;
    counts.vocabulary = tokens_.vocabulary;
    counts.begin = tokens_.begin;
    counts.end = tokens_.end;
    counts.levels.push_back(unigrams(order == 1));
    for (std::size_t n = 2; n <= order; ++n)
        counts.levels.push_back(extend(counts.levels.back(), n == order));
    return counts;
}

// Order 1: positions sorted by word. <s> is never predicted and not counted.
Level Counter::unigrams(bool is_top) {
    const std::uint32_t* const ids = tokens_.ids.data();
    const std::size_t size = tokens_.ids.size();
    const std::uint32_t V = tokens_.vocabulary;
    parallel_for(threads_, [&](std::size_t t) {
        const std::size_t to = part_begin(size, t + 1, threads_);
        for (std::size_t i = part_begin(size, t, threads_); i < to; ++i) ++lefts_[t][ids[i]].times;
        lefts_[t][tokens_.begin].times = 0;
    });
    at_ = compute_offsets();
    std::iota(at_.rows.begin(), at_.rows.end(), 0);
    parallel_for(threads_, [&](std::size_t t) {
        const std::size_t to = part_begin(size, t + 1, threads_);
        for (std::size_t i = part_begin(size, t, threads_); i < to; ++i)
            if (ids[i] != tokens_.begin)
                now_[lefts_[t][ids[i]].times++] = {static_cast<std::uint32_t>(i), ids[i]};
        for (Left& left : lefts_[t]) left.times = 0;
    });
    balanced_ranges();

    Level level;
    level.word = UninitializedBuffer<std::uint32_t>(V);
    level.count = UninitializedBuffer<std::uint32_t>(V);
    level.first = UninitializedBuffer<std::uint32_t>(2);
    level.first[0] = 0;
    level.first[1] = V;
    level.begins_from = tokens_.begin;
    level.begins_to = tokens_.begin + 1;
    for (std::uint32_t w = 0; w < V; ++w) {
        level.word[w] = w;
        level.count[w] = at_.occurrences[w + 1] - at_.occurrences[w];
    }
    if (tokens_.is_stream && size > 0) last_row_below_ = ids[size - 1];
    if (is_top) return level;
    level.continuation = UninitializedBuffer<std::uint32_t>(V);
    std::fill(level.continuation.begin(), level.continuation.end(), 0);  // words that do not occur
    parallel_for(threads_, [&](std::size_t t) { find_lefts(shares_[t], lefts_[t], level); });
    return level;
}

Level Counter::extend(const Level& below, bool is_top) {
    Offsets offsets = compute_offsets();
    if (is_top) {
        next_ = {};
        tokens_.ids = {};
        UninitializedBuffer<std::uint32_t> rows(offsets.occurrences.back(), Access::scattered);
        parallel_for(threads_, [&](std::size_t t) { scatter(shares_[t], lefts_[t], rows.data()); });
        now_ = {};
        at_below_ = std::exchange(at_, std::move(offsets));
        return make_level(rows.data(), below);
    }
    parallel_for(threads_, [&](std::size_t t) { scatter(shares_[t], lefts_[t], next_.data()); });
    std::swap(now_, next_);
    at_below_ = std::exchange(at_, std::move(offsets));
    Level level = make_level(now_.data(), below);
    ++order_;
    if (tokens_.is_stream) last_row_below_ = row_at(tokens_.ids.size() - order_);
    level.continuation = UninitializedBuffer<std::uint32_t>(level.size());
    parallel_for(threads_, [&](std::size_t t) { find_lefts(shares_[t], lefts_[t], level); });
    return level;
}

template <class Item>
Level Counter::make_level(Item* items, const Level& below) {
    balanced_ranges();
    Level level;
    const std::size_t rows = at_.rows.back();
    level.word = UninitializedBuffer<std::uint32_t>(rows);
    level.suffix = UninitializedBuffer<std::uint32_t>(rows);
    level.count = UninitializedBuffer<std::uint32_t>(rows);
    level.first = UninitializedBuffer<std::uint32_t>(below.size() + 1);
    level.first[below.size()] = at_.rows.back();
    level.begins_from = at_.rows[tokens_.begin];
    level.begins_to = at_.rows[tokens_.begin + 1];
    parallel_for(threads_, [&](std::size_t t) {
        number_rows(shares_[t], items, below, level);
        find_contexts(shares_[t], items, below, level);
    });
    return level;
}

// Splits first words into ranges with about the same number of occurrences.
void Counter::balanced_ranges() {
    shares_.clear();
    std::uint32_t from = 0;
    for (std::size_t t = 1; t <= threads_; ++t) {
        const auto target = static_cast<std::uint32_t>(part_begin(at_.occurrences.back(), t, threads_));
        const auto to = std::lower_bound(at_.occurrences.begin() + from, at_.occurrences.end() - 1, target);
        shares_.push_back({from, static_cast<std::uint32_t>(to - at_.occurrences.begin())});
        from = shares_.back().to;
    }
    shares_.back().to = tokens_.vocabulary;
}

// Sums the per-thread statistics of each left word (the first words of the next order) and turns counts into
// offsets, threads in order, so that the sort is stable.
Counter::Offsets Counter::compute_offsets() {
    const std::uint32_t V = tokens_.vocabulary;
    Offsets offsets{std::vector<std::uint32_t>(V + 1), std::vector<std::uint32_t>(V + 1)};
    std::uint32_t row = 0, occurrence = 0;
    for (std::uint32_t w = 0; w < V; ++w) {
        offsets.rows[w] = row;
        offsets.occurrences[w] = occurrence;
        for (std::vector<Left>& lefts : lefts_) {
            Left& left = lefts[w];
            row += std::exchange(left.rows, 0);
            const std::uint32_t times = std::exchange(left.times, occurrence);
            occurrence += times;
            left.last_row = kNone;
        }
    }
    offsets.rows[V] = row;
    offsets.occurrences[V] = occurrence;
    return offsets;
}

// Replaces the suffix row of each occurrence by its own row, and sets suffix, word and count of each row.
template <class Item>
void Counter::number_rows(Share share, Item* items, const Level& below, Level& level) {
    // Branch-free: whether a row is new is unpredictable, so values shared by all occurrences of a row
    // are rewritten each time. `count` temporarily holds the end of each row.
    for (std::uint32_t w = share.from; w < share.to; ++w) {
        std::uint32_t row = at_.rows[w] - 1, last = kNone;
        const std::uint32_t stop = at_.occurrences[w + 1];
        for (std::uint32_t i = at_.occurrences[w]; i < stop; ++i) {
            const std::uint32_t suffix = value_of(items[i]);
            row += suffix != last;
            last = suffix;
            value_of(items[i]) = row;
            level.suffix[row] = suffix;
            level.word[row] = below.word[suffix];
            level.count[row] = i + 1;
        }
    }
    std::uint32_t begin = at_.occurrences[share.from];
    for (std::uint32_t row = at_.rows[share.from]; row < at_.rows[share.to]; ++row) {
        const std::uint32_t end = level.count[row];
        level.count[row] = end - begin;
        begin = end;
    }
}

// Contexts are sorted like their n-grams: each owns the next occurrences, as many as it has followers.
template <class Item>
void Counter::find_contexts(Share share, Item* items, const Level& below, Level& level) const {
    const std::uint32_t stop = at_.occurrences[share.to];
    std::uint32_t at = at_.occurrences[share.from];
    for (std::uint32_t row = at_below_.rows[share.from]; row < at_below_.rows[share.to]; ++row) {
        level.first[row] = at < stop ? value_of(items[at]) : at_.rows[share.to];
        std::uint32_t follower_count = below.count[row] - (row == last_row_below_);
        if (!tokens_.is_stream && below.word[row] == tokens_.end) follower_count = 0;
        if (below.word[row] == tokens_.begin)
            follower_count = at_.occurrences[row + 1] - at_.occurrences[row];  // the row of <s>
        at += follower_count;
    }
}

// Replaces the row of each occurrence by the word to its left, and counts distinct left words of each row.
void Counter::find_lefts(Share share, std::vector<Left>& lefts, Level& level) {
    const std::uint32_t* const ids = tokens_.ids.data();
    const auto find = [&](std::uint32_t from, std::uint32_t to) {
        std::uint32_t last = kNone, different = 0;
        for (std::uint32_t i = from; i < to; ++i) {
            if (i + kAhead < to) prefetch(&ids[now_[i + kAhead].position - 1]);
            const auto [position, row] = now_[i];
            const std::uint32_t word = ids[position - 1];
            Left& left = lefts[word];
            const std::uint32_t is_new = left.last_row != row;
            left.last_row = row;
            left.rows += is_new;
            ++left.times;
            const bool is_first = row != last;
            last = row;
            different = (is_first ? 0 : different) + is_new;
            level.continuation[row] = different;
            now_[i] = {is_first ? position | kIsFirst : position, word};
        }
    };
    // <s> has no left neighbour.
    const std::uint32_t begin = tokens_.begin;
    find(at_.occurrences[share.from], at_.occurrences[std::clamp(begin, share.from, share.to)]);
    find(at_.occurrences[std::clamp(begin + 1, share.from, share.to)], at_.occurrences[share.to]);
    if (begin < share.from || begin >= share.to) return;
    for (std::uint32_t row = at_.rows[begin]; row < at_.rows[begin + 1]; ++row)
        level.continuation[row] = level.count[row];
}

// Scatters each occurrence, extended by its left word, to the next position of that word.
template <class Item>
void Counter::scatter(Share share, std::vector<Left>& lefts, Item* into) {
    for (std::uint32_t w = share.from; w < share.to; ++w) {
        if (w == tokens_.begin) continue;
        std::uint32_t row = at_.rows[w] - 1;
        const std::uint32_t stop = at_.occurrences[w + 1];
        for (std::uint32_t i = at_.occurrences[w]; i < stop; ++i) {
            const auto [position, word] = now_[i];
            row += position / kIsFirst;
            set(into[lefts[word].times++], (position & ~kIsFirst) - 1, row);
        }
    }
    for (Left& left : lefts) left.times = 0;
}

// Row of the n-gram at this position; kNone before the text.
std::uint32_t Counter::row_at(std::size_t position) const {
    if (position >= tokens_.ids.size()) return kNone;
    const std::uint32_t word = tokens_.ids[position];
    for (std::uint32_t i = at_.occurrences[word]; i < at_.occurrences[word + 1]; ++i)
        if (now_[i].position == position) return now_[i].value;
    return kNone;
}

}  // namespace

Tokens make_tokens(std::span<const std::int32_t> ids, std::uint32_t vocabulary, std::uint32_t begin,
                   std::uint32_t end, bool is_stream) {
    if (begin >= vocabulary || end >= vocabulary || begin == end)
        throw ArgumentError("<s> and </s> must have different ids below the vocabulary size");
    Tokens tokens;
    for (const std::int32_t id : ids) {
        if (id < 0 || static_cast<std::uint32_t>(id) >= vocabulary)
            throw ArgumentError("the text contains the id " + std::to_string(id) +
                                "; ids must be below the vocabulary size, " + std::to_string(vocabulary));
        if (static_cast<std::uint32_t>(id) == begin)
            throw ArgumentError(
                "the text contains the id of <s>, which is added to each line automatically; remove it");
        tokens.lines += static_cast<std::uint32_t>(id) == end;
    }
    if (!is_stream && !ids.empty() && static_cast<std::uint32_t>(ids.back()) != end)
        throw ArgumentError("the last line of the text does not end with </s>");
    const std::size_t size = ids.empty() ? 0 : ids.size() + (is_stream ? 1 : tokens.lines);
    if (size > kMaxTokens) throw ArgumentError("the text has more than 2147483647 tokens");
    tokens.ids = UninitializedBuffer<std::uint32_t>(size, Access::scattered);
    tokens.vocabulary = vocabulary;
    tokens.begin = begin;
    tokens.end = end;
    tokens.is_stream = is_stream;
    std::size_t at = 0;
    bool begins = true;
    for (const std::int32_t id : ids) {
        if (begins) tokens.ids[at++] = begin;
        tokens.ids[at++] = static_cast<std::uint32_t>(id);
        begins = !is_stream && static_cast<std::uint32_t>(id) == end;
    }
    return tokens;
}

Counts count_ngrams(Tokens tokens, std::size_t order, std::size_t threads) {
    if (order == 0) throw ArgumentError("the order of an n-gram model is 1 or more");
    return Counter(std::move(tokens), std::max<std::size_t>(threads, 1)).count(order);
}

}  // namespace chainrule
