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
constexpr std::uint64_t kSlack = 8 * kMegabyte;  // stacks, heap, code pages
constexpr std::uint64_t kStream = 256 << 10;     // buffer bytes per file
constexpr std::uint64_t kStreams = 9;            // buffers of a thread
constexpr std::uint64_t kByWord = 28;            // bytes per word while the model is written
constexpr std::uint64_t kMin = 4 * kMegabyte;    // minimum for sorting and buckets
constexpr std::uint64_t kMaxBuckets = 32 * kMegabyte;
// Sorting larger blocks than these is slower, because they leave the caches.
constexpr std::uint64_t kMaxSorted = 32 * kMegabyte, kRanges = 64;
constexpr std::uint64_t kAllSorted = std::uint64_t{1} << 33;  // positions of records have 32 bits
constexpr double kMinBuffer = 8192;                           // bytes of a bucket buffer

// Width of the widest record: order 1, as passed on to order 2.
std::uint64_t widest(std::size_t order) { return order + 3; }

std::uint64_t by_words(const TrainingSize& size) { return kSlack + kByWord * size.vocabulary; }

// Counts, ranges and occurrences by word, and for each thread occurrences and the last row by word.
std::uint64_t for_tables(const TrainingSize& size, std::uint64_t threads) {
    return kSlack + size.vocabulary * (16 + 8 * threads) + threads * (kStream * kStreams + kMegabyte);
}

// Each of t threads has x/t bytes, for a range that is sorted or for the bucket buffers of all ranges. The
// records take S bytes; two adjacent ranges exceed x/t, so there are at most 2 S t/x + 1 ranges. Buffers of b
// bytes need x/t ≥ b (2 S t/x + 1), which x/t = √(2 b S) + b satisfies.
std::uint64_t for_sorting(const TrainingSize& size) {
    const double S = static_cast<double>(size.tokens) * static_cast<double>(widest(size.order)) * 4;
    return std::max(kMin, static_cast<std::uint64_t>(std::sqrt(2.0 * kMinBuffer * S) + kMinBuffer));
}

// In addition to by_words: the compact layout keeps a number per 16 rows and column statistics; a quantised
// model is held in memory while its weights are computed (QuantizedRows).
std::uint64_t for_writing(const TrainingSize& size) {
    if (!size.is_small) return 0;
    const std::uint64_t samples = size.tokens * (size.order - 1) / 4;
    if (!size.is_quantized || size.order == 1) return samples + 3 * kMegabyte;
    return samples + size.tokens * (22 * (size.order - 2) + 1) + 26 * std::uint64_t{size.vocabulary} +
           10 * kMegabyte;
}

// Memory of one writer thread: a piece of the file, its rows, column statistics, all words of a context.
std::uint64_t by_writer(const TrainingSize& size) {
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

void trim_heap() {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

void return_large_blocks() {
#if defined(__GLIBC__)
    mallopt(M_MMAP_THRESHOLD, 1 << 18);
#endif
}

std::uint64_t minimum_memory(const TrainingSize& size, std::uint64_t in_use) {
    const std::uint64_t training = for_tables(size, 1) + for_sorting(size);
    return in_use + std::max(training, by_words(size) + for_writing(size) + by_writer(size));
}

Budget plan_memory(std::uint64_t memory, std::uint64_t in_use, const TrainingSize& size,
                   std::size_t threads) {
    const std::uint64_t least = minimum_memory(size, in_use);
    if (memory < least)
        // The next run of the program may start with slightly more memory in use.
        throw ArgumentError("memory is " + megabytes(memory) + ", but training on this text needs " +
                            megabytes(least + 2 * kMegabyte) + " (the program has " + megabytes(in_use) +
                            " already); give it at least that");
    std::uint64_t used = std::max<std::uint64_t>(threads, 1);
    while (used > 1 && in_use + for_tables(size, used) + used * for_sorting(size) > memory) --used;
    const std::uint64_t each = (memory - in_use - for_tables(size, used)) / used,
                        all = size.tokens * widest(size.order) * 4;
    const std::uint64_t target =
        std::min(std::max(std::min(kMaxSorted, all / (4 * used)), all / kRanges), kAllSorted);
    const std::uint64_t sorted = std::max<std::uint64_t>(std::min(each, target), widest(size.order) * 4);
    return {static_cast<std::size_t>(used), static_cast<std::size_t>(sorted / 4),
            static_cast<std::size_t>(std::min(each, kMaxBuckets) / 4), static_cast<std::size_t>(kStream / 4)};
}

std::size_t writer_threads_within(std::uint64_t memory, std::uint64_t in_use, const TrainingSize& size,
                                  std::size_t threads) {
    const std::uint64_t reserved = in_use + by_words(size) + for_writing(size);
    const std::uint64_t left = memory > reserved ? memory - reserved : 0;
    return std::clamp<std::size_t>(left / by_writer(size), 1, threads);
}

// The ids, the records of order 2, which are the widest, and the rows of a text where longer n-grams repeat.
std::uint64_t disk_required(const TrainingSize& size) {
    return size.tokens * 4 * (1 + widest(size.order) + size.order - 1) + std::uint64_t{size.vocabulary} * 80;
}

}  // namespace chainrule
