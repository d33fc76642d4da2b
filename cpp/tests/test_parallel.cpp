#include <atomic>
#include <vector>

#include "base/parallel.hpp"
#include "checks.hpp"

namespace chainrule::tests {

static void test_parallel() {
    for (const std::size_t n : {0, 1, 2, 7}) {
        std::vector<int> done(n);
        std::atomic<int> together = 0;
        run_on_threads(n, [&](std::size_t i) {
            ++done[i];
            ++together;
        });
        check(done == std::vector<int>(n, 1), "each part of the work is done once");
        check(together == static_cast<int>(n), "all work is done when the call returns");
    }
}

static const Test registered("parallel", test_parallel);

}  // namespace chainrule::tests
