// Training in partitions: windows coded and decoded, counts of split contexts, saturation, damaged records.
// The Python test tests/ngram/test_partitions.py compares whole models with the engine.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_stream.hpp"
#include "base/random.hpp"
#include "checks.hpp"
#include "ngram/partition/count_sums.hpp"
#include "ngram/partition/partition_counts.hpp"
#include "ngram/partition/partition_plan.hpp"
#include "ngram/partition/windows.hpp"
#include "ngram/vocabulary.hpp"

namespace chainrule::tests {

namespace {

using WindowCounts = std::map<std::vector<std::uint32_t>, std::uint64_t>;

constexpr std::uint32_t kV = 30;

std::vector<std::int32_t> random_text(Random& random, std::size_t size) {
    std::vector<std::int32_t> ids;
    while (ids.size() < size) {
        const std::uint64_t word = random.below(random.below(kV) + 1);
        if (word != kBegin) ids.push_back(static_cast<std::int32_t>(word));
    }
    ids.back() = kEnd;
    return ids;
}

// Windows by definition: each token with the words before it, <s> before a line or the text.
WindowCounts windows_of(const std::vector<std::int32_t>& ids, const WindowShape& shape) {
    WindowCounts counts;
    std::vector<std::uint32_t> window(shape.order, shape.begin);
    for (const std::int32_t id : ids) {
        std::copy_backward(window.begin(), window.end() - 1, window.end());
        window[0] = static_cast<std::uint32_t>(id);
        ++counts[window];
        if (window[0] == shape.end && !shape.is_stream) std::fill(window.begin(), window.end(), shape.begin);
    }
    return counts;
}

void test_windows() {
    Random random(1);
    for (std::uint32_t order = 1; order <= 20; order += order < 6 ? 1 : 7) {
        const WindowShape shape{order, kV, kBegin, kEnd, order % 2 == 0};
        const std::vector<std::int32_t> ids = random_text(random, 3000);
        const PartitionPlan plan = PartitionPlan::balance(shape, ids, 3, 50, 2);
        WindowCounts decoded;
        WindowEncoder encoder(plan);
        for (const std::size_t from : {std::size_t{0}, std::size_t{1000}}) {
            encoder.add(std::span(ids).subspan(from, from ? ids.size() - from : 1000));
            check(encoder.windows() == (from ? ids.size() - from : 1000), "the number of windows");
            for (const auto& [partition, record] : encoder.take()) {
                Windows windows;
                decode_windows(record, shape, kMaxWindows, windows);
                for (std::size_t i = 0; i < windows.size(); ++i) {
                    const std::uint32_t* const window = windows.window(i);
                    decoded[std::vector(window, window + order)] += windows.counts[i];
                    const auto context = [window](std::uint32_t k) { return window[1 + k]; };
                    if (order > 1)
                        check(plan.place(context).partition == partition, "the partition of a window");
                }
                check_fails([&] { decode_windows(record, shape, windows.size() - 1, windows); },
                            "choose a smaller --partition");
            }
        }
        check(decoded == windows_of(ids, shape), "the windows of order " + std::to_string(order));
    }
}

void test_bad_ids() {
    const WindowShape shape{3, kV, kBegin, kEnd, false};
    const PartitionPlan plan = PartitionPlan::balance(shape, {}, 2, 0, 1);
    WindowEncoder encoder(plan);
    const std::vector<std::int32_t> too_large{kV}, begin{kBegin}, word{5};
    check_fails<ArgumentError>([&] { encoder.add(too_large); }, "the text contains the id 30");
    check_fails<ArgumentError>([&] { encoder.add(begin); }, "the id of <s>");
    check_fails<ArgumentError>([&] { encoder.start(word); }, "belong to a stream");
    check_fails<ArgumentError>([&] { PartitionPlan::balance(shape, {}, 0, 0, 1); }, "partitions is 0");
    check_fails<ArgumentError>([&] { PartitionPlan::balance({33, kV, 1, 2, false}, {}, 1, 0, 1); },
                               "order is 33");
}

// Contexts are split to the depth that the limit asks for, and no partition has much more than its share.
void test_balance() {
    Random random(2);
    const WindowShape shape{5, kV, kBegin, kEnd, true};
    const std::vector<std::int32_t> ids = random_text(random, 60000);
    const PartitionPlan plan = PartitionPlan::balance(shape, ids, 60, 0, 4);
    std::size_t longest = 0;
    for (std::uint32_t i = 0; i < plan.split_contexts(); ++i)
        longest = std::max(longest, plan.context_of(i).size());
    check(longest >= 2, "a frequent pair of words is split as well");
    std::vector<std::size_t> loads(plan.partitions());
    for (const auto& [window, count] : windows_of(ids, shape))
        ++loads[plan.place([&window = window](std::uint32_t k) { return window[1 + k]; }).partition];
    std::ranges::sort(loads);
    check(loads.back() <= 2 * loads[loads.size() / 2], "the largest partition is at most twice the median");
    check(plan.ranges().front() == 0 && plan.ranges().back() == kV && plan.ranges().size() == 5,
          "the ranges of first words");
    check(PartitionPlan(plan.bytes()).bytes() == plan.bytes(), "a plan is read as it was written");
}

// A window that occurs 2^32 − 2 times in each of two records.
void test_saturation() {
    const WindowShape shape{2, kV, kBegin, kEnd, false};
    const PartitionPlan plan = PartitionPlan::balance(shape, {}, 1, 0, 1);
    ByteWriter record;
    record.number(std::uint8_t{0x0F});  // no shared words, a large count
    record.varint(0xFFFFFFFE);
    record.varint(7);  // context
    record.varint(9);  // word
    const std::string bytes = record.take();
    const PartitionCounts once(plan, {bytes}), twice(plan, {bytes, bytes});
    check(once.level(2).count[0] == 0xFFFFFFFE, "a large count");
    check(twice.level(2).size() == 1 && twice.level(2).count[0] == 0xFFFFFFFF, "a count saturates");
    CountSums sums(2);
    for (int i = 0; i < 3; ++i) sums.add(1, {4, 0x80000000, 0x80000000});
    sums.merge();
    check(sums.rows()[1].size() == 1 && sums.rows()[1][0].count == 0xFFFFFFFF &&
              sums.rows()[1][0].adjusted == 0xFFFFFFFF,
          "sums saturate");
}

void test_damaged_records() {
    Random random(3);
    const WindowShape shape{4, kV, kBegin, kEnd, false};
    const std::vector<std::int32_t> ids = random_text(random, 300);
    const PartitionPlan plan = PartitionPlan::balance(shape, ids, 1, 40, 1);
    WindowEncoder encoder(plan);
    encoder.add(ids);
    const std::string record = encoder.take()[0].second, bytes = plan.bytes();
    for (std::size_t size = 0; size < bytes.size(); size += 3)
        check_fails([&] { PartitionPlan(std::string_view(bytes).substr(0, size)); }, "damaged");
    for (int i = 0; i < 300; ++i) {
        std::string damaged = record.substr(0, random.below(record.size() + 1));
        if (!damaged.empty()) damaged[random.below(damaged.size())] = static_cast<char>(random.below(256));
        try {
            const PartitionCounts counts(plan, {damaged});
            for (const auto& sum : counts.sums(2)) CountSums(4).add(sum.second);
        } catch (const Error& error) {
            check(std::string(error.what()).find("damaged") != std::string::npos, error.what());
        }
    }
}

const Test windows("partition windows", test_windows);
const Test bad_ids("partition ids", test_bad_ids);
const Test balanced("partition balance", test_balance);
const Test saturation("partition saturation", test_saturation);
const Test damaged("partition records", test_damaged_records);

}  // namespace

}  // namespace chainrule::tests
