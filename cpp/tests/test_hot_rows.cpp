#include <vector>

#include "checks.hpp"
#include "hot_rows.hpp"

namespace chainrule::tests {

namespace {

// Two threads, rows of two numbers.
void two_threads_meet() {
    std::vector<float> shared{1, 2, 3, 4, 5, 6};
    std::mutex mutex;
    HotRows one(shared.data(), 2, 2), other(shared.data(), 2, 2);
    check(one.has(1) && !one.has(2) && !HotRows().has(0), "which rows are copied");
    one.row(0)[0] += 10;
    one.row(1)[1] += 10;
    other.row(0)[0] += 4;
    check(shared[0] == 1 && shared[3] == 4, "nothing is shared before a meeting");
    one.meet(shared.data(), 2, mutex);
    other.meet(shared.data(), 9, mutex);
    check(shared == std::vector<float>{15, 2, 3, 14, 5, 6}, "1 + 10 + 4, and 4 + 10");
    check(one.row(0)[0] == 11 && other.row(0)[0] == 15 && other.row(1)[1] == 14,
          "each goes on from what it found");
    one.row(1)[0] += 1;
    one.meet(shared.data(), 1, mutex);
    check(shared[0] == 15 && one.row(0)[0] == 15, "nothing is given twice");
    check(shared[2] == 3 && one.row(1)[0] == 4, "a row that does not meet is kept");
}

void the_hotter_the_oftener() {
    const std::vector<std::pair<std::size_t, std::uint64_t>> wanted{
        {0, 1}, {63, 1}, {64, 4}, {255, 4}, {256, 16}, {1024, 64}, {4095, 64}};
    for (const auto& [row, every] : wanted) {
        std::uint64_t shared = 0;
        for (std::uint64_t meeting = 1; meeting <= 640; ++meeting) shared += row < rows_of_meeting(meeting);
        check(shared * every == 640, "how often a row is shared");
    }
}

void many_threads_copy_less() {
    check(copied_rows(1, 112) == 0 && copied_rows(2, 112) == 4096 && copied_rows(4, 112) == 1024,
          "few threads");
    check(copied_rows(8, 112) == 256 && copied_rows(9, 112) == 0, "many threads");
    check(copied_rows(2, 1 << 14) * 2 * 2 * (1 << 14) * 4 <= 32 << 20, "wide rows: 32 MiB");
    for (const std::size_t threads : {2, 4, 8}) {
        check(words_between_meetings(threads) * threads == 5000, "words of all threads between two meetings");
    }
}

}  // namespace

void test_hot_rows() {
    two_threads_meet();
    the_hotter_the_oftener();
    many_threads_copy_less();
}

}  // namespace chainrule::tests
