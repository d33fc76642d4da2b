// Inner loops of word-vector training, one set per instruction set, selected at run time.
//
// Rows have `width` floats, a multiple of kLanes aligned to 64 bytes, zero-padded after the vector.
#pragma once

#include <cstddef>
#include <string>

namespace chainrule {

inline constexpr std::size_t kLanes = 16;
inline constexpr std::size_t kGroup = 6;  // targets per group, limited by the number of registers

// Inputs x and targets y of one window; the first target is the word itself, the others are noise.
struct Step {
    float* const* x;
    std::size_t rows;  // at least 1
    float* const* y;   // distinct rows
    std::size_t targets;
    std::size_t width;
    float rate;
    float* scratch;  // kGroup · rows + 2 · width floats
    double* loss;    // accumulates −log σ(x · y_0) − Σ_k log σ(−x · y_k); or null
};

// One pair of GloVe. A row is a vector and, at `bias`, its bias; `…_squares` are AdaGrad's sums, above 0
// everywhere, including the padding.
struct Pair {
    float* w;
    float* v;
    float* w_squares;
    float* v_squares;
    std::size_t width;
    std::size_t bias;
    float weight;  // f(X)
    float log_x;
    float rate;
};

struct Kernels {
    // e_ak = rate ([k = 0] − σ(x_a · y_k)); x_a += Σ_k e_ak y_k, y_k += Σ_a e_ak x_a; kGroup targets after
    // the other.
    void (*window)(const Step&);
    // The same with the one input h = mean of x, whose whole gradient goes to each row of x.
    void (*bag)(const Step&);
    // AdaGrad on f(X) (w · v + b_w + b_v − log X)² / 2; returns that before the step.
    float (*fit)(const Pair&);
    const char* name;
};

// "avx512", "avx2" or "none"; "auto" is the widest that this processor supports. Throws Error if the named
// one is not supported.
const Kernels& choose_kernels(const std::string& name);

const Kernels* kernels_plain();
const Kernels* kernels_avx2();  // null if the compiler does not support them
const Kernels* kernels_avx512();

}  // namespace chainrule
