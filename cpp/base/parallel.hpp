// Work on several threads that may fail: what one of them throws is thrown here, after all have ended.
#pragma once

#include <cstddef>
#include <exception>
#include <new>
#include <vector>

#include "base/error.hpp"
#include "base/threads.hpp"

namespace chainrule {

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
