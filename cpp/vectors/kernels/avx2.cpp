// Eight floats at a time; compiled with -mavx2 -mfma, run only where the processor has both.
#include "vectors/kernels/impl.hpp"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

namespace chainrule {
namespace {

struct Avx2 {
    static constexpr int kSize = 8;
    using Vector = __m256;
    static Vector zero() { return _mm256_setzero_ps(); }
    static Vector all(float x) { return _mm256_set1_ps(x); }
    static Vector load(const float* p) { return _mm256_load_ps(p); }
    static void store(float* p, Vector a) { _mm256_store_ps(p, a); }
    static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
    static Vector subtract(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
    static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
    static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
    static Vector inverse_root(Vector a) {  // 12 bits, then one step of Newton's: r (3 − a r²) / 2
        const Vector r = _mm256_rsqrt_ps(a);
        const Vector rest = _mm256_fnmadd_ps(_mm256_mul_ps(a, r), r, all(3.0F));
        return _mm256_mul_ps(_mm256_mul_ps(all(0.5F), r), rest);
    }
    template <int M>
    static void totals(const Vector* sums, float* totals_out) {
        for (int k = 0; k < M; ++k) {
            const __m128 four =
                _mm_add_ps(_mm256_castps256_ps128(sums[k]), _mm256_extractf128_ps(sums[k], 1));
            const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            totals_out[k] = _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
        }
    }
};

}  // namespace

const Kernels* kernels_avx2() {
    static constexpr Kernels result = make_kernels<Avx2>("avx2");
    return &result;
}

}  // namespace chainrule
#else
namespace chainrule {
const Kernels* kernels_avx2() { return nullptr; }
}  // namespace chainrule
#endif
