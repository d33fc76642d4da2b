// Sixteen floats at a time; compiled with -mavx512f -mavx512dq, run only where the processor has both.
#include "vectors/kernels/impl.hpp"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include <immintrin.h>

namespace chainrule {
namespace {

struct Avx512 {
    static constexpr int kSize = 16;
    using Vector = __m512;
    static Vector zero() { return _mm512_setzero_ps(); }
    static Vector all(float x) { return _mm512_set1_ps(x); }
    static Vector load(const float* p) { return _mm512_load_ps(p); }
    static void store(float* p, Vector a) { _mm512_store_ps(p, a); }
    static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
    static Vector subtract(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
    static Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
    static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
    static Vector inverse_root(Vector a) {  // 14 bits, then one step of Newton's: r (3 − a r²) / 2
        const Vector r = _mm512_rsqrt14_ps(a);
        const Vector rest = _mm512_fnmadd_ps(_mm512_mul_ps(a, r), r, all(3.0F));
        return _mm512_mul_ps(_mm512_mul_ps(all(0.5F), r), rest);
    }
    template <int M>
    static void totals(const Vector* sums, float* totals_out) {
        __m256 eight[8];
        for (int k = 0; k < M; ++k) {
            eight[k] = _mm256_add_ps(_mm512_castps512_ps256(sums[k]), _mm512_extractf32x8_ps(sums[k], 1));
        }
        for (int k = M; k < 8; ++k) eight[k] = _mm256_setzero_ps();
        const __m256 a =
            _mm256_hadd_ps(_mm256_hadd_ps(eight[0], eight[1]), _mm256_hadd_ps(eight[2], eight[3]));
        if (M <= 4) {
            alignas(16) float result[4];
            _mm_store_ps(result, _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)));
            for (int k = 0; k < M && k < 4; ++k) totals_out[k] = result[k];
            return;
        }
        const __m256 b =
            _mm256_hadd_ps(_mm256_hadd_ps(eight[4], eight[5]), _mm256_hadd_ps(eight[6], eight[7]));
        const __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
        alignas(32) float result[8];
        _mm256_store_ps(result, _mm256_add_ps(low, high));
        for (int k = 0; k < M; ++k) totals_out[k] = result[k];
    }
};

}  // namespace

const Kernels* kernels_avx512() {
    static constexpr Kernels result = make_kernels<Avx512>("avx512");
    return &result;
}

}  // namespace chainrule
#else
namespace chainrule {
const Kernels* kernels_avx512() { return nullptr; }
}  // namespace chainrule
#endif
