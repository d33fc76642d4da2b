#include "ngram/build/memory_budget.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "base/error.hpp"

#if __has_include(<unistd.h>)
#include <sys/resource.h>
#include <unistd.h>
#endif

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace chainrule {

namespace {

constexpr std::uint64_t kMegabyte = 1 << 20;
constexpr std::uint64_t kSlack = 8 * kMegabyte;  // stacks, the heap, the code that comes into memory
constexpr std::uint64_t kStream = 256 << 10;     // bytes that one file buffers
constexpr std::uint64_t kStreams = 10;           // files in use at once
constexpr std::uint64_t kByWord = 28;  // bytes of the tables by word; writing the words takes no more
constexpr std::uint64_t kLeast = 4 * kMegabyte;  // for sorting and dealing
constexpr std::uint64_t kMostDealt = 16 * kMegabyte;
// Sorting more at once than this, or than so small a part of all records, is slower: it leaves the caches.
constexpr std::uint64_t kMostSorted = 32 * kMegabyte, kParts = 64;
constexpr double kLeastBuffer = 8192;  // bytes of a range of what is dealt

// Numbers of the widest record: of order 1 as they are dealt to order 2.
std::uint64_t widest(std::size_t order) { return order + 3; }

std::uint64_t by_words(const Size& size) { return kSlack + kByWord * size.vocabulary; }

// A quarter of what is left, x, is for the buffers of ranges. All records are S bytes; two ranges side by
// side hold more than is sorted at once, ¾x, so that there are at most 2 S/(¾x) + 1 of them. Buffers of b
// bytes need x/4 ≥ b (8 S/(3x) + 1), which x = √(32/3 b S) + 4b suffices for.
std::uint64_t for_sorting(const Size& size) {
    const double S = static_cast<double>(size.tokens) * static_cast<double>(widest(size.order)) * 4;
    const double x = std::sqrt(32.0 / 3.0 * kLeastBuffer * S) + 4 * kLeastBuffer;
    return std::max(kLeast, static_cast<std::uint64_t>(x));
}

// Beside by_words: the layout "small" keeps a number for every 16 rows, and looks at all values first; a
// quantised model is held in memory while its weights are computed (ngram/format/quantized_rows.hpp).
std::uint64_t for_writing(const Size& size) {
    if (!size.is_small) return 0;
    const std::uint64_t samples = size.tokens * (size.order - 1) / 4;
    if (!size.is_quantized || size.order == 1) return samples + 3 * kMegabyte;
    return samples + size.tokens * (22 * (size.order - 2) + 1) + 26 * std::uint64_t{size.vocabulary} +
           10 * kMegabyte;
}

// What one thread needs that writes: a piece of the file, the rows it is made from, values looked at, and all
// words of a context.
std::uint64_t by_writer(const Size& size) {
    const std::uint64_t values = size.is_quantized ? 10 : size.is_small ? 3 : 0;
    return (3 + values) * kMegabyte + 8 * std::uint64_t{size.vocabulary};
}

std::string megabytes(std::uint64_t bytes) { return std::to_string(bytes / kMegabyte) + "M"; }

}  // namespace

std::uint64_t memory_in_use() {
#if defined(__linux__)
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "r"),
                                                               &std::fclose);
    unsigned long long all = 0, resident = 0;
    if (file && std::fscanf(file.get(), "%llu %llu", &all, &resident) == 2)
        return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
#endif
#if __has_include(<unistd.h>)
    struct rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
#if defined(__APPLE__)
        return static_cast<std::uint64_t>(usage.ru_maxrss);
#else
        return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
#endif
    }
#endif
    return 0;
}

void give_unused_back() {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

std::uint64_t least_memory(const Size& size, std::uint64_t in_use) {
    const std::uint64_t training = kStream * kStreams + for_sorting(size);
    return in_use + by_words(size) + std::max(training, for_writing(size) + by_writer(size));
}

Budget budget_within(std::uint64_t memory, std::uint64_t in_use, const Size& size, std::size_t threads) {
    const std::uint64_t least = least_memory(size, in_use);
    if (memory < least)
        // Another run of the program may begin with a little more.
        throw Failure("memory is " + megabytes(memory) + ", but training on this text needs " +
                      megabytes(least + 2 * kMegabyte) + " (the program has " + megabytes(in_use) +
                      " already); give it at least that");
    const std::uint64_t left = memory - in_use - by_words(size) - kStream * kStreams;
    const std::uint64_t dealt = std::min(left / 4, kMostDealt);
    const std::uint64_t all = size.tokens * widest(size.order) * 4,
                        wanted = std::max(kMostSorted, all / kParts);
    const bool is_ahead = threads > 1 && left - dealt >= 2 * std::min(kMostSorted, all);
    const std::uint64_t sorted = std::min({(left - dealt) / (is_ahead ? 2 : 1), all, wanted});
    return {static_cast<std::size_t>(sorted / 4), static_cast<std::size_t>(is_ahead ? sorted / 4 : 0),
            static_cast<std::size_t>(dealt / 4), static_cast<std::size_t>(kStream / 4)};
}

std::size_t writers_within(std::uint64_t memory, std::uint64_t in_use, const Size& size,
                           std::size_t threads) {
    const std::uint64_t taken = in_use + by_words(size) + for_writing(size);
    const std::uint64_t left = memory > taken ? memory - taken : 0;
    return std::clamp<std::size_t>(left / by_writer(size), 1, threads);
}

// Rows of all orders with four numbers each; those of two orders with five; left words; what is dealt.
std::uint64_t disk_needed(const Size& size) {
    return size.tokens * 4 * (4 * size.order + 2 * 5 + size.order + widest(size.order));
}

}  // namespace chainrule
