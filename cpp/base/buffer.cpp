#include "base/buffer.hpp"

#include <cstdint>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace chainrule {

namespace {

constexpr std::align_val_t kCacheLine{64};

#if defined(__linux__)

// Large blocks are mapped directly: the heap would keep them, and a process that trains repeatedly would
// grow.
constexpr std::size_t kPage = std::size_t{1} << 21;

bool is_large(std::size_t bytes) { return bytes >= kPage / 4 * 3; }

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void* take_pages(std::size_t bytes, Access access) {
    const std::size_t size = whole_pages(bytes);
    void* const mapping =
        mmap(nullptr, size + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    // Keep the aligned part; unmap what lies before and after it.
    char* const begin = static_cast<char*>(mapping);
    const std::size_t before = (kPage - reinterpret_cast<std::uintptr_t>(begin) % kPage) % kPage;
    if (before) munmap(begin, before);
    munmap(begin + before + size, kPage - before);
    if (access == Access::scattered) madvise(begin + before, size, MADV_HUGEPAGE);  // only a hint
    return begin + before;
}

#endif

}  // namespace

void* allocate_memory(std::size_t bytes, [[maybe_unused]] Access access) noexcept {
#if defined(__linux__)
    if (is_large(bytes)) return take_pages(bytes, access);
#endif
    return ::operator new(bytes, kCacheLine, std::nothrow);
}

void release_memory(void* memory, std::size_t bytes) noexcept {
#if defined(__linux__)
    if (is_large(bytes)) {
        munmap(memory, whole_pages(bytes));
        return;
    }
#endif
    static_cast<void>(bytes);
    ::operator delete(memory, kCacheLine);
}

}  // namespace chainrule
