// Shards: bounds, slices of every order, and rows joined again.
#include <cstdint>
#include <vector>

#include "checks.hpp"
#include "ngram/format/shards.hpp"
#include "random_tables.hpp"

namespace chainrule::tests {

namespace {

struct Columns {
    std::vector<std::uint32_t> word, first;
    std::vector<float> log_prob, log_backoff;

    bool operator==(const Columns&) const = default;
};

// All rows of an order, read in pieces of `step` rows.
Columns columns_of(const Rows& rows, std::size_t n, std::size_t step) {
    const std::size_t size = rows.size(n);
    Columns columns{std::vector<std::uint32_t>(size), std::vector<std::uint32_t>(size + 1),
                    std::vector<float>(size), std::vector<float>(size)};
    const bool has_children = n < rows.order();
    for (std::size_t from = 0; from < size; from += step) {
        rows.read(n, from, std::min(step, size - from), &columns.word[from], &columns.log_prob[from],
                  &columns.log_backoff[from], has_children ? &columns.first[from] : nullptr);
    }
    return columns;
}

void test_bounds() {
    // Words 0, 1 and 2 begin 4, 0 and 4 bigrams.
    std::vector<TableLevel> levels(2);
    levels[0].word = UninitializedBuffer<std::uint32_t>(3);
    levels[1].word = UninitializedBuffer<std::uint32_t>(8);
    levels[1].first = UninitializedBuffer<std::uint32_t>(4);
    const std::vector<std::uint32_t> first{0, 4, 4, 8};
    std::ranges::copy(first, levels[1].first.begin());
    const TableRows rows(levels);
    check(shard_bounds(rows, 1) == std::vector<std::uint32_t>{0, 3}, "one shard has all words");
    check(shard_bounds(rows, 2) == std::vector<std::uint32_t>{0, 1, 3}, "two shards have four bigrams each");
    check(shard_bounds(rows, 3).size() == 4, "a range can be empty");
    check_fails([&] { shard_bounds(rows, 4); }, "choose 1 to 3");
    check_fails([&] { shard_bounds(rows, 0); }, "choose 1 to 3");
}

void test_split_and_join() {
    const auto tables = random_tables(4, 40, {7, 1, 20}, 3);
    const TableRows whole(tables);
    for (const std::size_t shards : {1, 2, 5, 40}) {
        const std::vector<std::uint32_t> bounds = shard_bounds(whole, shards);
        std::vector<ShardRows> slices;
        std::vector<JoinedRows::Part> parts;
        slices.reserve(shards);
        for (std::size_t s = 0; s < shards; ++s) {
            const WordRange range{bounds[s], bounds[s + 1]};
            parts.push_back({&slices.emplace_back(whole, range), range});
        }
        const JoinedRows joined(parts);
        bool is_same = true;
        for (std::size_t n = 1; n <= 4; ++n) {
            const Columns expected = columns_of(whole, n, 1000);
            for (const std::size_t step : {1, 3, 1000}) is_same &= columns_of(joined, n, step) == expected;
            std::uint64_t sum = 0;
            for (const ShardRows& slice : slices) sum += slice.size(n);
            is_same &= sum == whole.size(n) * (n == 1 ? shards : 1);
        }
        check(is_same, "the joined rows are those of the whole model");
        if (shards == 1) continue;
        check_fails([&] { JoinedRows({parts.back()}); }, "do not follow one another");
        check_fails([&] { JoinedRows({parts[0]}); }, "do not cover all words");
    }
    check_fails([] { JoinedRows({}); }, "no shards");
}

void test_shards() {
    test_bounds();
    test_split_and_join();
}

}  // namespace

static const Test registered("shards", test_shards);

}  // namespace chainrule::tests
