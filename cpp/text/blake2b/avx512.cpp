// Eight texts at a time; compiled with -mavx512f -mavx512dq, run only where the processor has both.
#include "text/blake2b/lanes.hpp"

#if defined(__AVX512F__)
#include <immintrin.h>

namespace chainrule {
namespace {

struct Avx512 {
    static constexpr std::size_t kLanes = 8;
    using Words __attribute__((vector_size(64))) = std::uint64_t;
    template <int bits>
    static Words rotate(Words x) {  // to the right
        return reinterpret_cast<Words>(_mm512_ror_epi64(reinterpret_cast<__m512i>(x), bits));
    }
};

}  // namespace

Blake2b blake2b_avx512() { return hash_texts<Avx512, 1>; }
Blake2b blake2b_128_avx512() { return hash_texts<Avx512, 2>; }

}  // namespace chainrule
#else
namespace chainrule {
Blake2b blake2b_avx512() { return nullptr; }
Blake2b blake2b_128_avx512() { return nullptr; }
}  // namespace chainrule
#endif
