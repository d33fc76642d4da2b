#include "ngram/build/count.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/prefetch.hpp"

namespace chainrule {

namespace {

// One bit of a position tells where an n-gram begins (ngram/build/count.cpp).
constexpr std::uint64_t kMostTokens = (std::uint64_t{1} << 31) - 1;

constexpr std::uint32_t kNone = 0xFFFFFFFF;
constexpr std::uint32_t kIsFirst = 0x80000000;  // of its row, beside a position
constexpr std::size_t kAhead = 48;              // occurrences between the call for a token and its use

// One n-gram where it stands in the text.
struct Occurrence {
    std::uint32_t position;  // of its first word, and kIsFirst for a while
    // In turn: the row of its suffix, its own row, the word to its left.
    std::uint32_t value;
};

// At the highest order nothing is asked of the text again, and the rows alone are sorted.
std::uint32_t& value_of(Occurrence& occurrence) { return occurrence.value; }
std::uint32_t& value_of(std::uint32_t& row) { return row; }
void set(Occurrence& occurrence, std::uint32_t position, std::uint32_t row) { occurrence = {position, row}; }
void set(std::uint32_t& value, std::uint32_t, std::uint32_t row) { value = row; }

// What one thread knows of a word as the left neighbour of its share of the rows.
struct Left {
    std::uint32_t last_row = kNone;  // the last row that it stood before
    std::uint32_t rows = 0;          // how many rows
    std::uint32_t times = 0;         // how many occurrences; then where the next of them goes
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
    // Words [from, to) as first words, with all that begins with them; one thread's part of an order.
    struct Share {
        std::uint32_t from, to;
    };
    // By first word, and behind the last one: where its rows begin, and its occurrences.
    struct Places {
        std::vector<std::uint32_t> rows, occurrences;
    };

    Level unigrams(bool is_top);
    Level extend(const Level& below, bool is_top);
    Places place_lefts();
    void share_out();
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
    Array<Occurrence> now_, next_;  // of the order in hand, and of the next
    Places at_, at_below_;          // of the order in hand, and of the one below
    std::size_t order_ = 1;
    std::uint32_t last_row_below_ = kNone;  // of a stream, the row whose last occurrence ends the text
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

// Order 1: positions sorted by their word. <s> is never predicted: it is no occurrence.
Level Counter::unigrams(bool is_top) {
    const std::uint32_t* const ids = tokens_.ids.data();
    const std::size_t size = tokens_.ids.size();
    const std::uint32_t V = tokens_.vocabulary;
    in_parallel(threads_, [&](std::size_t t) {
        const std::size_t to = part_begin(size, t + 1, threads_);
        for (std::size_t i = part_begin(size, t, threads_); i < to; ++i) ++lefts_[t][ids[i]].times;
        lefts_[t][tokens_.begin].times = 0;
    });
    at_ = place_lefts();
    std::iota(at_.rows.begin(), at_.rows.end(), 0);
    in_parallel(threads_, [&](std::size_t t) {
        const std::size_t to = part_begin(size, t + 1, threads_);
        for (std::size_t i = part_begin(size, t, threads_); i < to; ++i)
            if (ids[i] != tokens_.begin)
                now_[lefts_[t][ids[i]].times++] = {static_cast<std::uint32_t>(i), ids[i]};
        for (Left& left : lefts_[t]) left.times = 0;
    });
    share_out();

    Level level;
    level.word = Array<std::uint32_t>(V);
    level.count = Array<std::uint32_t>(V);
    level.first = Array<std::uint32_t>(2);
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
    level.continuation = Array<std::uint32_t>(V);
    std::fill(level.continuation.begin(), level.continuation.end(), 0);  // of words that the text lacks
    in_parallel(threads_, [&](std::size_t t) { find_lefts(shares_[t], lefts_[t], level); });
    return level;
}

Level Counter::extend(const Level& below, bool is_top) {
    Places places = place_lefts();
    if (is_top) {
        next_ = {};
        tokens_.ids = {};
        Array<std::uint32_t> rows(places.occurrences.back(), Access::scattered);
        in_parallel(threads_, [&](std::size_t t) { scatter(shares_[t], lefts_[t], rows.data()); });
        now_ = {};
        at_below_ = std::exchange(at_, std::move(places));
        return make_level(rows.data(), below);
    }
    in_parallel(threads_, [&](std::size_t t) { scatter(shares_[t], lefts_[t], next_.data()); });
    std::swap(now_, next_);
    at_below_ = std::exchange(at_, std::move(places));
    Level level = make_level(now_.data(), below);
    ++order_;
    if (tokens_.is_stream) last_row_below_ = row_at(tokens_.ids.size() - order_);
    level.continuation = Array<std::uint32_t>(level.size());
    in_parallel(threads_, [&](std::size_t t) { find_lefts(shares_[t], lefts_[t], level); });
    return level;
}

template <class Item>
Level Counter::make_level(Item* items, const Level& below) {
    share_out();
    Level level;
    const std::size_t rows = at_.rows.back();
    level.word = Array<std::uint32_t>(rows);
    level.suffix = Array<std::uint32_t>(rows);
    level.count = Array<std::uint32_t>(rows);
    level.first = Array<std::uint32_t>(below.size() + 1);
    level.first[below.size()] = at_.rows.back();
    level.begins_from = at_.rows[tokens_.begin];
    level.begins_to = at_.rows[tokens_.begin + 1];
    in_parallel(threads_, [&](std::size_t t) {
        number_rows(shares_[t], items, below, level);
        find_contexts(shares_[t], items, below, level);
    });
    return level;
}

// First words in ranges that have about as many occurrences each.
void Counter::share_out() {
    shares_.clear();
    std::uint32_t from = 0;
    for (std::size_t t = 1; t <= threads_; ++t) {
        const auto wanted = static_cast<std::uint32_t>(part_begin(at_.occurrences.back(), t, threads_));
        const auto to = std::lower_bound(at_.occurrences.begin() + from, at_.occurrences.end() - 1, wanted);
        shares_.push_back({from, static_cast<std::uint32_t>(to - at_.occurrences.begin())});
        from = shares_.back().to;
    }
    shares_.back().to = tokens_.vocabulary;
}

// Sums what the threads found of each left word, the first words of the next order, and turns each thread's
// number of occurrences into the place of its first: the threads in order, so that the sort is stable.
Counter::Places Counter::place_lefts() {
    const std::uint32_t V = tokens_.vocabulary;
    Places places{std::vector<std::uint32_t>(V + 1), std::vector<std::uint32_t>(V + 1)};
    std::uint32_t row = 0, place = 0;
    for (std::uint32_t w = 0; w < V; ++w) {
        places.rows[w] = row;
        places.occurrences[w] = place;
        for (std::vector<Left>& lefts : lefts_) {
            Left& left = lefts[w];
            row += std::exchange(left.rows, 0);
            const std::uint32_t times = std::exchange(left.times, place);
            place += times;
            left.last_row = kNone;
        }
    }
    places.rows[V] = row;
    places.occurrences[V] = place;
    return places;
}

// Gives each occurrence its row instead of its suffix's, and each row its suffix, word and count.
template <class Item>
void Counter::number_rows(Share share, Item* items, const Level& below, Level& level) {
    // No branch on whether a row is new, which cannot be foretold: what all occurrences of a row have in
    // common is written again with each. A row's end stands in `count` until all are known.
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

// Contexts are sorted as their n-grams are: each has the next so many occurrences as it has words behind it.
template <class Item>
void Counter::find_contexts(Share share, Item* items, const Level& below, Level& level) const {
    const std::uint32_t stop = at_.occurrences[share.to];
    std::uint32_t at = at_.occurrences[share.from];
    for (std::uint32_t row = at_below_.rows[share.from]; row < at_below_.rows[share.to]; ++row) {
        level.first[row] = at < stop ? value_of(items[at]) : at_.rows[share.to];
        std::uint32_t followed = below.count[row] - (row == last_row_below_);
        if (!tokens_.is_stream && below.word[row] == tokens_.end) followed = 0;
        if (below.word[row] == tokens_.begin)
            followed = at_.occurrences[row + 1] - at_.occurrences[row];  // <s> itself
        at += followed;
    }
}

// Gives each occurrence the word to its left instead of its row, and counts the different ones of each row.
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
    // Nothing stands to the left of <s>.
    const std::uint32_t begin = tokens_.begin;
    find(at_.occurrences[share.from], at_.occurrences[std::clamp(begin, share.from, share.to)]);
    find(at_.occurrences[std::clamp(begin + 1, share.from, share.to)], at_.occurrences[share.to]);
    if (begin < share.from || begin >= share.to) return;
    for (std::uint32_t row = at_.rows[begin]; row < at_.rows[begin + 1]; ++row)
        level.continuation[row] = level.count[row];
}

// Every occurrence with one word more to its left, to that word's next place.
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

// The row of the n-gram that begins there; kNone where that is before the text.
std::uint32_t Counter::row_at(std::size_t position) const {
    if (position >= tokens_.ids.size()) return kNone;
    const std::uint32_t word = tokens_.ids[position];
    for (std::uint32_t i = at_.occurrences[word]; i < at_.occurrences[word + 1]; ++i)
        if (now_[i].position == position) return now_[i].value;
    return kNone;
}

}  // namespace

Tokens take_ids(std::span<const std::int32_t> ids, std::uint32_t vocabulary, std::uint32_t begin,
                std::uint32_t end, bool is_stream) {
    if (begin >= vocabulary || end >= vocabulary || begin == end)
        throw Failure("<s> and </s> must be two numbers below the size of the vocabulary");
    Tokens tokens;
    for (const std::int32_t id : ids) {
        if (id < 0 || static_cast<std::uint32_t>(id) >= vocabulary)
            throw Failure("the text holds the number " + std::to_string(id) + ", which is not below the " +
                          std::to_string(vocabulary) + " of the vocabulary");
        if (static_cast<std::uint32_t>(id) == begin)
            throw Failure("the text holds <s>, which lines are given here");
        tokens.lines += static_cast<std::uint32_t>(id) == end;
    }
    if (!is_stream && !ids.empty() && static_cast<std::uint32_t>(ids.back()) != end)
        throw Failure("the last line of the text does not end with </s>");
    const std::size_t size = ids.empty() ? 0 : ids.size() + (is_stream ? 1 : tokens.lines);
    if (size > kMostTokens) throw Failure("the text has more than 2147483647 tokens");
    tokens.ids = Array<std::uint32_t>(size, Access::scattered);
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
    if (order == 0) throw Failure("the order of an n-gram model is 1 or more");
    return Counter(std::move(tokens), std::max<std::size_t>(threads, 1)).count(order);
}

}  // namespace chainrule
