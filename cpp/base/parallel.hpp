// The same work on several threads at once.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <new>
#include <vector>

#include "base/error.hpp"

namespace chainrule {

// Calls work(0) … work(n − 1), each on a thread of its own but the first, which is done here, and waits for
// all. `work` throws nothing. Throws Failure where the system gives no n threads; those that had started have
// ended then.
void run_on_threads(std::size_t n, const std::function<void(std::size_t)>& work);

// Work on several threads that may fail: what one of them throws is thrown here, after all have ended.

template <class Work>
void in_parallel(std::size_t threads, const Work& work) {
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
            throw Failure("there is not enough memory");
        }
    }
}

// Where part t of `parts` equal parts of `size` begins.
inline std::size_t part_begin(std::size_t size, std::size_t t, std::size_t parts) {
    return size / parts * t + size % parts * t / parts;
}

}  // namespace chainrule
