// A small coverage-guided fuzzer for compilers without one: mutates inputs and keeps those that reach new
// code.
//
//   fuzz_NAME SECONDS [SEED]    runs for SECONDS; an input that crashes the process is left in
//   fuzz_NAME.input fuzz_NAME FILE …            runs these inputs
//
// The code under test is compiled with -fsanitize-coverage=trace-pc (GCC), which calls the function below at
// every branch; this file is not.
#include "driver.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/random.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kEdges = std::size_t{1} << 16, kMax = std::size_t{1} << 18;
std::array<std::uint8_t, kEdges> now_reached, ever_reached;
thread_local std::uintptr_t last_address = 0;

}  // namespace

extern "C" void __sanitizer_cov_trace_pc() {
    const auto address = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
    now_reached[(address ^ last_address) * 0x9E3779B97F4A7C15ULL >> 48] = 1;
    last_address = address >> 1;
}

namespace chainrule::fuzz {

namespace {

bool runs_to_new_code(const std::string& input) {
    now_reached.fill(0);
    last_address = 0;
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
    bool is_new = false;
    for (std::size_t i = 0; i < kEdges; ++i) {
        is_new |= now_reached[i] && !ever_reached[i];
        ever_reached[i] |= now_reached[i];
    }
    return is_new;
}

// Applies one mutation to an input.
void change(std::string& input, const std::vector<std::string>& corpus, const std::vector<std::string>& some,
            Random& random) {
    const auto below = [&](std::size_t n) { return random.below(static_cast<std::uint32_t>(n)); };
    const std::size_t at = below(input.size() + 1), length = below(below(64) + 1) + 1;
    const auto byte = [&] { return static_cast<char>(random.next()); };
    switch (below(9)) {
        case 0:
            if (at < input.size()) input[at] = static_cast<char>(input[at] ^ 1 << below(8));
            break;
        case 1:
            if (at < input.size()) input[at] = byte();
            break;
        case 2:
            input.erase(at, length);
            break;
        case 3:
            input.insert(at, length, byte());
            break;
        case 4:  // duplicate a part
            input.insert(at, input.substr(below(input.size() + 1), length));
            break;
        case 5:  // insert a part of another input
        {
            const std::string& other = corpus[below(corpus.size())];
            input.insert(at, other.substr(below(other.size() + 1), length * 4));
            break;
        }
        case 6:
            if (!some.empty()) input.insert(at, some[below(some.size())]);
            break;
        case 7:  // change a number of 4 or 8 bytes slightly, or set it to an extreme value
            if (const std::size_t wide = below(2) ? 4 : 8; at + wide <= input.size()) {
                const std::size_t aligned = at / wide * wide;
                std::uint64_t value = 0;
                std::copy_n(input.data() + aligned, wide, reinterpret_cast<char*>(&value));
                value = below(4) == 0 ? std::uint64_t{0} - below(2) : value + below(33) - 16;
                std::copy_n(reinterpret_cast<const char*>(&value), wide, input.data() + aligned);
            }
            break;
        default:
            if (below(8) == 0) input.resize(at);
    }
    if (input.size() > kMax) input.resize(kMax);
}

std::string contents(const char* path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

int run_for(double seconds, std::uint64_t seed, const std::string& left) {
    Random random(seed);
    std::vector<std::string> corpus = seeds();
    for (const std::string& input : corpus) runs_to_new_code(input);
    const std::vector<std::string> some = pieces();
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    std::uint64_t runs = 0;
    while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
        std::string input = corpus[random.below(static_cast<std::uint32_t>(corpus.size()))];
        const std::uint32_t changes = 1 + random.below(1 + random.below(8));
        for (std::uint32_t i = 0; i < changes; ++i) change(input, corpus, some, random);
        {
            std::ofstream(left, std::ios::binary | std::ios::trunc)
                << input;  // kept if this input crashes the process
        }
        if (runs_to_new_code(input)) corpus.push_back(input);
        ++runs;
    }
    std::remove(left.c_str());
    const auto reached = std::count(ever_reached.begin(), ever_reached.end(), 1);
    std::printf("%llu inputs, %zu kept, %lld branches reached, no crash\n",
                static_cast<unsigned long long>(runs), corpus.size(), static_cast<long long>(reached));
    return 0;
}

}  // namespace

}  // namespace chainrule::fuzz

int main(int count, char** arguments) {
    using namespace chainrule::fuzz;
    char* end = nullptr;
    const double seconds = count > 1 ? std::strtod(arguments[1], &end) : 10;
    if (count <= 1 || *end == 0) {
        const std::uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
        return run_for(seconds, seed, std::string(arguments[0]) + ".input");
    }
    for (int i = 1; i < count; ++i) {
        const std::string input = contents(arguments[i]);
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
    }
    return 0;
}
