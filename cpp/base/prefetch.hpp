// Prefetches memory that will be read soon, where the compiler supports it.
#pragma once

namespace chainrule {

inline void prefetch([[maybe_unused]] const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address);
#endif
}

}  // namespace chainrule
