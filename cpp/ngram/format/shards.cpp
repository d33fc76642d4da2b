#include "ngram/format/shards.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace chainrule {

namespace {

// For each order the first row whose n-gram begins with `word` or a later word.
std::vector<std::uint64_t> rows_from(const Rows& rows, std::uint32_t word) {
    std::vector<std::uint64_t> row{word};
    for (std::size_t n = 1; n < rows.order(); ++n) {
        std::uint32_t first = 0;
        rows.read(n, row.back(), 0, nullptr, nullptr, nullptr, &first);
        row.push_back(first);
    }
    return row;
}

// Number of rows above order 1 whose n-gram begins with a word below `word`.
std::uint64_t rows_before(const Rows& rows, std::uint32_t word) {
    const std::vector<std::uint64_t> row = rows_from(rows, word);
    std::uint64_t sum = 0;
    for (std::size_t n = 1; n < row.size(); ++n) sum += row[n];
    return sum;
}

}  // namespace

std::vector<std::uint32_t> shard_bounds(const Rows& rows, std::size_t shards) {
    const auto words = static_cast<std::uint32_t>(rows.size(1));
    if (shards == 0 || shards > words) {
        throw ArgumentError("a model of " + std::to_string(words) + " words cannot have " +
                            std::to_string(shards) + " shards; choose 1 to " + std::to_string(words));
    }
    const std::uint64_t total = rows_before(rows, words);
    std::vector<std::uint32_t> bounds{0};
    for (std::size_t s = 1; s < shards; ++s) {
        const std::uint64_t target = total / shards * s + total % shards * s / shards;
        std::uint32_t low = bounds.back(), high = words;  // the first word with `target` rows before it
        while (low < high) {
            const std::uint32_t middle = low + (high - low) / 2;
            if (rows_before(rows, middle) < target) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        const bool is_below_nearer =
            low > bounds.back() && target - rows_before(rows, low - 1) < rows_before(rows, low) - target;
        bounds.push_back(is_below_nearer ? low - 1 : low);
    }
    bounds.push_back(words);
    return bounds;
}

ShardRows::ShardRows(const Rows& whole, WordRange range)
    : whole_(whole), from_(rows_from(whole, range.from)), to_(rows_from(whole, range.to)) {}

void ShardRows::read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word,
                     float* log_prob, float* log_backoff, std::uint32_t* first) const {
    const bool has_children = first && n < order();
    whole_.read(n, n == 1 ? from : from_[n - 1] + from, count, word, log_prob, log_backoff,
                has_children ? first : nullptr);
    for (std::size_t i = 0; has_children && i <= count; ++i) {
        const auto row = std::clamp<std::uint64_t>(first[i], from_[n], to_[n]);
        first[i] = static_cast<std::uint32_t>(row - from_[n]);
    }
    for (std::size_t i = 0; n == 1 && log_backoff && i < count; ++i)
        if (from + i < from_[0] || from + i >= to_[0]) log_backoff[i] = 0;
}

JoinedRows::JoinedRows(std::vector<Part> parts) : parts_(std::move(parts)) {
    if (parts_.empty()) throw ArgumentError("there are no shards to join");
    std::uint32_t next = 0;
    for (const Part& part : parts_) {
        if (part.rows->order() != parts_[0].rows->order() || part.rows->size(1) != parts_[0].rows->size(1))
            throw ArgumentError("the shards are of different models");
        if (part.range.from != next || part.range.to < next)
            throw ArgumentError("the shards do not follow one another");
        next = part.range.to;
    }
    if (next != parts_[0].rows->size(1)) throw ArgumentError("the shards do not cover all words");
    for (std::size_t n = 1; n <= parts_[0].rows->order(); ++n) {
        std::vector<std::uint64_t>& starts = starts_.emplace_back(1, 0);
        for (const Part& part : parts_)
            starts.push_back(n == 1 ? part.range.to : starts.back() + part.rows->size(n));
    }
}

void JoinedRows::read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word,
                      float* log_prob, float* log_backoff, std::uint32_t* first) const {
    const std::vector<std::uint64_t>& starts = starts_[n - 1];
    const bool has_children = first && n < order();
    // The last part that begins at or before the row; earlier ones with the same start are empty.
    auto part = static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end() - 1, from) -
                                         starts.begin() - 1);
    for (bool is_first = true; is_first || count > 0; is_first = false, ++part) {
        const std::size_t size = std::min<std::uint64_t>(count, starts[part + 1] - from);
        const std::uint64_t row = n == 1 ? from : from - starts[part];
        parts_[part].rows->read(n, row, size, word, log_prob, log_backoff, has_children ? first : nullptr);
        for (std::size_t i = 0; has_children && i <= size; ++i)
            first[i] += static_cast<std::uint32_t>(starts_[n][part]);
        from += size;
        count -= size;
        if (word) word += size;
        if (log_prob) log_prob += size;
        if (log_backoff) log_backoff += size;
        if (first) first += size;
    }
}

}  // namespace chainrule
