// Four floats at a time, which every 64-bit processor has, in the vector types of GCC and Clang.
#include "vectors/kernels/impl.hpp"

namespace chainrule {
namespace {

struct Plain {
    static constexpr int kSize = 4;
    using Vector __attribute__((vector_size(16))) = float;
    static Vector zero() { return Vector{}; }
    static Vector all(float x) { return Vector{x, x, x, x}; }
    static Vector load(const float* p) {
        Vector a;
        __builtin_memcpy(&a, p, sizeof a);
        return a;
    }
    static void store(float* p, Vector a) { __builtin_memcpy(p, &a, sizeof a); }
    static Vector add(Vector a, Vector b) { return a + b; }
    static Vector subtract(Vector a, Vector b) { return a - b; }
    static Vector multiply(Vector a, Vector b) { return a * b; }
    static Vector multiply_add(Vector a, Vector b, Vector c) { return a * b + c; }
    static Vector inverse_root(Vector a) {
        Vector result{};
        for (int i = 0; i < kSize; ++i) result[i] = 1.0F / __builtin_sqrtf(a[i]);
        return result;
    }
    template <int M>
    static void totals(const Vector* sums, float* totals_out) {
        for (int k = 0; k < M; ++k) totals_out[k] = (sums[k][0] + sums[k][2]) + (sums[k][1] + sums[k][3]);
    }
};

}  // namespace

const Kernels* kernels_plain() {
    static constexpr Kernels result = make_kernels<Plain>("none");
    return &result;
}

}  // namespace chainrule
