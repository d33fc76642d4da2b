#include <vector>

#include "checks.hpp"
#include "hot_rows.hpp"
#include "word2vec_copies.hpp"

namespace chainrule::tests {

namespace {

// Two threads, rows of two numbers; the first row takes all of a thread's steps, the second half of them.
void two_threads_meet() {
    std::vector<float> shared{1, 2, 3, 4, 5, 6};
    std::mutex mutex;
    HotRows one(shared.data(), 2, {1.0F, 0.5F}), other(shared.data(), 2, {1.0F, 0.5F});
    check(one.has(1) && !one.has(2) && !HotRows().has(0), "which rows are copied");
    one.row(0)[0] += 10;
    one.row(1)[1] += 10;
    other.row(0)[0] += 4;
    other.row(1)[1] += 4;
    check(shared[0] == 1 && shared[3] == 4, "nothing is shared before a meeting");
    one.meet(shared.data(), mutex);
    other.meet(shared.data(), mutex);
    check(shared == std::vector<float>{15, 2, 3, 11, 5, 6}, "1 + 10 + 4, and 4 + (10 + 4) / 2");
    check(one.row(0)[0] == 11 && other.row(0)[0] == 15, "each goes on from what it found");
    one.meet(shared.data(), mutex);
    check(shared[0] == 15 && one.row(0)[0] == 15, "nothing is given twice");
}

// However many threads there are, no row takes the steps of more than two of them whole.
void many_threads_copy_less() {
    std::vector<std::uint64_t> counts;
    for (std::uint64_t rank = 1; rank <= 10000; ++rank) counts.push_back(1000000 / rank);
    const std::vector<std::uint32_t> keep(counts.size(), kAlways);
    Word2vecConfig config;
    for (config.threads = 2; config.threads <= 32; config.threads *= 2) {
        for (const bool is_cbow : {false, true}) {
            config.is_cbow = is_cbow;
            const auto [input, output] = parts_of_rows(config, counts, keep);
            check(input.empty() == is_cbow, "whose rows are copied");
            for (const float part : input)
                check(part * static_cast<float>(config.threads) <= 2, "the steps of two threads at most");
            check(config.threads == 2 || output.size() < 4096, "with many threads the rarer are shared");
        }
    }
}

}  // namespace

void test_hot_rows() {
    two_threads_meet();
    for (const std::size_t threads : {1, 2, 16}) {
        check_close(part_of_steps(0, threads), 1, 0, "no steps: all of them");
        check_close(part_of_steps(1e9, threads), 1.0 / static_cast<double>(threads), 1e-7, "many: the mean");
    }
    // s = 1 − exp(−1) = 0.63212, 1 / (1 + 2 s) = 0.44164
    check_close(part_of_steps(1024, 3), 0.44164, 1e-5, "between the two");
    many_threads_copy_less();
}

}  // namespace chainrule::tests
