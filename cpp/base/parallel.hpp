// Running a function on several threads.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <new>
#include <vector>

#include "base/error.hpp"

namespace chainrule {

// Calls work(0) … work(n − 1), work(0) on the calling thread and the others on one new thread each, and waits
// for all. `work` must not throw. Throws Error if the system cannot start the threads; those already started
// have finished by then.
void run_on_threads(std::size_t n, const std::function<void(std::size_t)>& work);

// As run_on_threads, but `work` may throw: the first exception is rethrown after all threads have finished.

template <class Work>
void parallel_for(std::size_t threads, const Work& work) {
    std::vector<std::exception_ptr> thrown(threads);
    run_on_threads(threads, [&](std::size_t t) {
        try {
            work(t);
        } catch (...) {
            thrown[t] = std::current_exception();
        }
    });
    for (const std::exception_ptr& error : thrown) {
        if (!error) continue;
        try {
            std::rethrow_exception(error);
        } catch (const std::bad_alloc&) {
            throw OutOfMemory("there is not enough memory");
        }
    }
}

// First index of part t when `size` items are split into `parts` nearly equal parts.
inline std::size_t part_begin(std::size_t size, std::size_t t, std::size_t parts) {
    return size / parts * t + size % parts * t / parts;
}

}  // namespace chainrule
