// Four texts at a time; compiled with -mavx2 -mfma, run only where the processor has both.
#include "text/blake2b/lanes.hpp"

#if defined(__AVX2__)
#include <immintrin.h>

namespace chainrule {
namespace {

struct Avx2 {
    static constexpr std::size_t kLanes = 4;
    using Words __attribute__((vector_size(32))) = std::uint64_t;
    template <int bits>
    static Words rotate(Words x) {  // to the right
        const auto bytes = reinterpret_cast<__m256i>(x);
        if constexpr (bits == 32) return reinterpret_cast<Words>(_mm256_shuffle_epi32(bytes, 0xB1));
        if constexpr (bits == 24)
            return reinterpret_cast<Words>(_mm256_shuffle_epi8(
                bytes, _mm256_setr_epi8(3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10, 3, 4, 5, 6, 7,
                                        0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10)));
        if constexpr (bits == 16)
            return reinterpret_cast<Words>(_mm256_shuffle_epi8(
                bytes, _mm256_setr_epi8(2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9, 2, 3, 4, 5, 6,
                                        7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9)));
        return x >> bits | x << (64 - bits);
    }
};

}  // namespace

Blake2b blake2b_avx2() { return hash_texts<Avx2, 1>; }
Blake2b blake2b_128_avx2() { return hash_texts<Avx2, 2>; }

}  // namespace chainrule
#else
namespace chainrule {
Blake2b blake2b_avx2() { return nullptr; }
Blake2b blake2b_128_avx2() { return nullptr; }
}  // namespace chainrule
#endif
