#include "text/blake2b/blake2b.hpp"

#include "base/error.hpp"
#include "text/blake2b/lanes.hpp"

namespace chainrule {

namespace {

// Two texts at a time, which every 64-bit processor has, in the vector types of GCC and Clang.
struct Plain {
    static constexpr std::size_t kLanes = 2;
    using Words __attribute__((vector_size(16))) = std::uint64_t;
    template <int bits>
    static Words rotate(Words x) {  // to the right
        return x >> bits | x << (64 - bits);
    }
};

bool runs(const std::string& name) {
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
    if (name == "avx512")
        return blake2b_avx512() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    if (name == "avx2")
        return blake2b_avx2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return name == "none";
}

// The widest instruction set for "auto", else the name after a check.
std::string instruction_set(const std::string& name) {
    if (name == "auto") {
        static const std::string widest = runs("avx512") ? "avx512" : runs("avx2") ? "avx2" : "none";
        return widest;
    }
    if (!runs(name))
        throw ArgumentError("vector instructions '" + name + "' do not run on this processor; choose auto");
    return name;
}

}  // namespace

Blake2b choose_blake2b(const std::string& name) {
    const std::string set = instruction_set(name);
    return set == "avx512" ? blake2b_avx512() : set == "avx2" ? blake2b_avx2() : hash_texts<Plain, 1>;
}

Blake2b choose_blake2b_128(const std::string& name) {
    const std::string set = instruction_set(name);
    return set == "avx512" ? blake2b_128_avx512() : set == "avx2" ? blake2b_128_avx2() : hash_texts<Plain, 2>;
}

std::uint64_t blake2b_64(std::string_view text) {
    std::uint64_t hash;
    choose_blake2b("auto")(&text, 1, &hash);
    return hash;
}

}  // namespace chainrule
