#include "ngram/build/external_ids.hpp"

#include <bit>
#include <cstdio>
#include <memory>

#include "base/buffer.hpp"
#include "base/error.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kAtOnce = 1 << 16;

}  // namespace

void IdFile::read(const std::function<void(std::span<const std::int32_t>)>& use) const {
    static_assert(std::endian::native == std::endian::little);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path_.c_str(), "rb"), &std::fclose);
    if (!file) throw Failure(path_ + " cannot be read");
    std::setvbuf(file.get(), nullptr, _IONBF, 0);  // whole blocks are read here
    Array<std::int32_t> numbers(kAtOnce);
    while (true) {
        const std::size_t bytes = std::fread(numbers.data(), 1, kAtOnce * sizeof(std::int32_t), file.get());
        if (std::ferror(file.get())) throw Failure(path_ + " cannot be read");
        if (bytes % sizeof(std::int32_t) != 0) throw Failure(path_ + " ends within a number; make it anew");
        if (bytes > 0) use({numbers.data(), bytes / sizeof(std::int32_t)});
        if (bytes < kAtOnce * sizeof(std::int32_t)) return;
    }
}

}  // namespace chainrule
