#include "base/parallel.hpp"

#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace chainrule {

void run_on_threads(std::size_t n, const std::function<void(std::size_t)>& work) {
    std::vector<std::thread> threads;
    threads.reserve(n);
    try {
        for (std::size_t i = 1; i < n; ++i) threads.emplace_back([&work, i] { work(i); });
    } catch (const std::system_error&) {
        for (std::thread& thread : threads) thread.join();
        throw Error("cannot start " + std::to_string(n) + " threads; choose fewer");
    }
    if (n > 0) work(0);
    for (std::thread& thread : threads) thread.join();
}

}  // namespace chainrule
