// Training with a memory limit gives bit for bit the rows of training in memory.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "checks.hpp"
#include "ngram/build/count.hpp"
#include "ngram/build/external.hpp"
#include "ngram/build/kneser_ney.hpp"
#include "ngram/build/memory_budget.hpp"

namespace chainrule::tests {

namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{4} << 30;

std::string temporary_folder() { return std::filesystem::temp_directory_path().string(); }

// A few frequent and many rare words, so that there are rows with all counts.
std::vector<std::int32_t> random_ids(Random& random, std::size_t size, std::uint32_t vocabulary) {
    std::vector<std::int32_t> ids;
    while (ids.size() < size) {
        const std::uint64_t word = random.below(random.below(vocabulary) + 1);
        if (word != 1) ids.push_back(static_cast<std::int32_t>(word));
        // Repeats earlier text occasionally.
        for (std::size_t i = 0; i < 4 && ids.size() > 20 && random.below(8) == 0; ++i)
            ids.push_back(ids[ids.size() - 17]);
    }
    ids.back() = 2;
    return ids;
}

template <class T>
void append(std::string& bytes, const std::vector<T>& values) {
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    bytes.push_back('|');
}

// All rows of a model, read in pieces of 1000 rows.
std::string bytes_of(const Rows& rows) {
    std::string bytes;
    for (std::size_t n = 1; n <= rows.order(); ++n) {
        for (std::uint64_t from = 0; from < rows.size(n); from += 1000) {
            const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(1000, rows.size(n) - from));
            std::vector<std::uint32_t> word(count), first(count + 1, 0);
            std::vector<float> log_prob(count), log_backoff(count);
            rows.read(n, from, count, word.data(), log_prob.data(), log_backoff.data(), first.data());
            append(bytes, word);
            append(bytes, log_prob);
            append(bytes, log_backoff);
            append(bytes, first);
        }
        bytes.push_back('\n');
    }
    return bytes;
}

void equals_in_memory_training(const std::vector<std::int32_t>& ids, const TextMetadata& text,
                               ExternalOptions options, std::size_t records) {
    const KneserNey expected = estimate_kneser_ney(
        count_ngrams(make_tokens(ids, text.vocabulary, text.begin, text.end, text.is_stream), options.order,
                     1),
        1, options.unknown, options.cut_offs);
    options.records = records;
    const ExternalModel actual = estimate_external(IdArray(ids), text, options);
    const std::string what = "order " + std::to_string(options.order) + ", " + std::to_string(ids.size()) +
                             " tokens, " + std::to_string(records) + " at once";
    check(bytes_of(*actual.rows) == bytes_of(TableRows(expected.levels)), "the rows of " + what);
    for (std::size_t k = 0; k < options.order; ++k) {
        check(actual.discounts[k].of == expected.discounts[k].of, "the discounts of " + what);
        check(actual.discounts[k].n == expected.discounts[k].n, "the counts of counts of " + what);
        check(actual.discounts[k].source == expected.discounts[k].source, "the source of " + what);
    }
}

void random_texts() {
    Random random(7);
    for (int round = 0; round < 300; ++round) {
        const std::uint32_t most = round % 10 == 0 ? 20000 : 200;
        const std::uint32_t vocabulary = 3 + static_cast<std::uint32_t>(random.below(round % 3 ? 40 : 3000));
        const auto ids = random_ids(random, 1 + random.below(most), vocabulary);
        const TextMetadata text{vocabulary, 1, 2, random.below(2) == 1};
        ExternalOptions options;
        options.order = 1 + random.below(6);
        options.unknown = random.below(2) ? 0 : kEveryWord;
        options.memory = kPlenty;
        options.folder = temporary_folder();
        options.threads = 1 + random.below(8);
        if (random.below(2)) {
            for (std::size_t k = 0; k < options.order; ++k)
                options.cut_offs.push_back(k ? static_cast<std::uint32_t>(random.below(3)) : 0);
            std::sort(options.cut_offs.begin(), options.cut_offs.end());
        }
        if (round % 2) options.max_count = 1 + static_cast<std::uint32_t>(random.below(5));
        for (const std::size_t records :
             std::vector<std::size_t>{0, 1, 1 + random.below(static_cast<std::uint32_t>(ids.size()))})
            if (records != 1 || ids.size() < 500) equals_in_memory_training(ids, text, options, records);
    }
}

void small_texts() {
    ExternalOptions options;
    options.memory = kPlenty;
    options.folder = temporary_folder();
    for (std::size_t order = 1; order <= 6; ++order) {
        options.order = order;
        for (const bool is_stream : {false, true}) {
            for (const std::vector<std::int32_t>& ids : {std::vector<std::int32_t>{},
                                                         {2},
                                                         {3, 2},
                                                         {2, 2, 2},
                                                         {3, 3, 3, 3, 3, 2},
                                                         {0, 3, 2, 3, 0, 2, 2}})
                for (const std::size_t records : {0, 1, 2})
                    equals_in_memory_training(ids, {4, 1, 2, is_stream}, options, records);
        }
        equals_in_memory_training({3, 0, 3}, {4, 1, 2, true}, options, 1);
    }
}

void files_of_ids() {
    Random random(3);
    const auto ids = random_ids(random, 200000, 500);
    const TextMetadata text{500, 1, 2, false};
    ExternalOptions options;
    options.memory = kPlenty;
    options.folder = temporary_folder();
    options.order = 3;
    const Scratch scratch;
    std::ofstream(scratch.name(), std::ios::binary)
        .write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * 4));
    const std::string expected = bytes_of(*estimate_external(IdArray(ids), text, options).rows);
    check(bytes_of(*estimate_external(IdFile(scratch.name()), text, options).rows) == expected,
          "ids from a file");
    options.memory = minimum_memory({ids.size(), 500, 3}, memory_in_use()) + (1 << 20);
    check(bytes_of(*estimate_external(IdFile(scratch.name()), text, options).rows) == expected,
          "the least memory");
    std::ofstream(scratch.name(), std::ios::binary | std::ios::app) << "x";
    check_fails([&] { estimate_external(IdFile(scratch.name()), text, options); },
                "is truncated: its size is not a multiple of 4 bytes");
    check_fails([&] { estimate_external(IdFile(scratch.name() + "-none"), text, options); },
                "cannot be read");
}

// A text with more n-grams of an order than a file has rows, with a smaller limit: 3 bigrams.
void limit_of_rows() {
    const std::vector<std::int32_t> ids{0, 3, 2};
    ExternalOptions options;
    options.order = 2;
    options.memory = kPlenty;
    options.folder = temporary_folder();
    options.max_rows = 4;
    equals_in_memory_training(ids, {4, 1, 2, false}, options, 0);
    options.max_rows = 3;
    check_fails([&] { estimate_external(IdArray(ids), {4, 1, 2, false}, options); },
                "the text has 4 different n-grams of order 1, more than the 3 of a model file");
}

// As many threads as fit, and fewer with less memory.
void division_of_memory() {
    const TrainingSize size{1000000000, 2000000, 5};
    const std::uint64_t least = minimum_memory(size, 0);
    check(least < std::uint64_t{128} << 20, "the least memory of 10^9 tokens is " + std::to_string(least));
    check(plan_memory(least, 0, size, 8).threads == 1, "one thread with the least memory");
    const Budget budget = plan_memory(std::uint64_t{400} << 20, 0, size, 2);
    check(budget.threads == 2, "two threads in 400 MiB");
    check(4 * budget.threads * std::max(budget.sorted, budget.buckets) < std::uint64_t{400} << 20,
          "buffers of all threads");
    check_fails([&] { plan_memory(least - 1, 0, size, 8); }, "but training on this text needs");
}

void refusals() {
    const std::vector<std::int32_t> line{3, 2}, open{3}, high{4, 2}, low{-1, 2}, begin{1, 2};
    ExternalOptions options;
    options.order = 2;
    options.memory = kPlenty;
    options.folder = temporary_folder();
    const TextMetadata text{4, 1, 2, false};
    const auto train = [&](const std::vector<std::int32_t>& ids) {
        estimate_external(IdArray(ids), text, options);
    };
    check_fails([&] { train(open); }, "does not end with </s>");
    check_fails([&] { train(high); }, "contains the id 4");
    check_fails([&] { train(low); }, "contains the id -1");
    check_fails([&] { train(begin); }, "contains the id of <s>");
    options.memory = 1 << 20;
    check_fails([&] { train(line); }, "memory is 1M");
    options.memory = kPlenty;
    options.folder = temporary_folder() + "/there-is-no-such-folder";
    check_fails([&] { train(line); }, "there-is-no-such-folder cannot be written to");
    options.folder = temporary_folder();
    options.cut_offs = {0, 1, 0};
    check_fails([&] { train(line); }, "3 cut-offs for 2 orders");
    options.cut_offs = {1, 1};
    check_fails([&] { train(line); }, "start with 0");
    options.cut_offs = {};
    options.progress = [](std::size_t done, std::size_t) {
        if (done == 2) throw Error("stopped");
    };
    check_fails([&] { train(line); }, "stopped");
    options.order = 0;
    check_fails([&] { train(line); }, "1 or more");
}

}  // namespace

static void test_external() {
    small_texts();
    random_texts();
    files_of_ids();
    limit_of_rows();
    division_of_memory();
    refusals();
}

static const Test registered("external", test_external);

}  // namespace chainrule::tests
