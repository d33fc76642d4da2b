// The same work on several threads at once.
#pragma once

#include <cstddef>
#include <functional>

namespace chainrule {

// Calls work(0) … work(n − 1), each on a thread of its own but the first, which is done here, and waits for
// all. `work` throws nothing. Throws Failure where the system gives no n threads; those that had started have
// ended then.
void run_on_threads(std::size_t n, const std::function<void(std::size_t)>& work);

}  // namespace chainrule
