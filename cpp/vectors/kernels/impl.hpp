// The kernels over one set of vector instructions S; each kernels_*.cpp includes this with its own, under its
// own flags.
//
// Everything is in an unnamed namespace and free of inline functions of the standard library: a function
// compiled for a wide processor must never be the one that the linker keeps for all.
#pragma once

#include "vectors/kernels/kernels.hpp"

namespace chainrule {
namespace {

constexpr int kTableSize = 1024;
constexpr float kTableEnd = 8.0F;  // |σ(±8) − {0, 1}| < 4e-4

struct Tables {
    float sigmoid[kTableSize];
    float minus_log[kTableSize];  // −log σ
    Tables() {
        for (int i = 0; i < kTableSize; ++i) {
            const double x = ((i + 0.5) * 2 / kTableSize - 1) * static_cast<double>(kTableEnd);
            const double e = __builtin_exp(-x);
            sigmoid[i] = static_cast<float>(1 / (1 + e));
            minus_log[i] = static_cast<float>(__builtin_log1p(e));
        }
    }
};

const Tables& tables() {
    static const Tables result;
    return result;
}

int cell_of(float x) {
    const float bounded =
        x > -kTableEnd ? (x < kTableEnd ? x : kTableEnd) : -kTableEnd;  // also maps NaN to −kTableEnd
    const int i = static_cast<int>((bounded + kTableEnd) * (kTableSize / (2 * kTableEnd)));
    return i < kTableSize ? i : kTableSize - 1;
}

// e (rows, M) of x and M targets, the first of which is the word itself where `is_word`.
template <class S, int M>
void errors(const Step& s, float* const* y, bool is_word, float* e) {
    const Tables& table = tables();
    for (std::size_t a = 0; a < s.rows; ++a) {
        const float* x = s.x[a];
        typename S::Vector sums[M];
        for (int k = 0; k < M; ++k) sums[k] = S::zero();
        for (std::size_t i = 0; i < s.width; i += S::kSize) {
            const auto part = S::load(x + i);
            for (int k = 0; k < M; ++k) sums[k] = S::multiply_add(part, S::load(y[k] + i), sums[k]);
        }
        float dots[M];
        S::template totals<M>(sums, dots);
        for (int k = 0; k < M; ++k) {
            const bool is_true = is_word && k == 0;
            e[a * M + k] = s.rate * ((is_true ? 1.0F : 0.0F) - table.sigmoid[cell_of(dots[k])]);
            if (s.loss) *s.loss += table.minus_log[cell_of(is_true ? dots[k] : -dots[k])];
        }
    }
}

template <class S, int M>
void window_of(const Step& s, float* const* y, bool is_word) {
    float* e = s.scratch;
    errors<S, M>(s, y, is_word, e);
    for (std::size_t i = 0; i < s.width; i += S::kSize) {
        typename S::Vector before[M], after[M];
        for (int k = 0; k < M; ++k) before[k] = after[k] = S::load(y[k] + i);
        for (std::size_t a = 0; a < s.rows; ++a) {
            const auto x = S::load(s.x[a] + i);
            auto moved = x;
            for (int k = 0; k < M; ++k) {
                const auto q = S::all(e[a * M + k]);
                moved = S::multiply_add(q, before[k], moved);
                after[k] = S::multiply_add(q, x, after[k]);
            }
            S::store(s.x[a] + i, moved);
        }
        for (int k = 0; k < M; ++k) S::store(y[k] + i, after[k]);
    }
}

// h and its gradient are in the scratch; y is updated immediately, the gradient is accumulated.
template <class S, int M>
void bag_of(const Step& s, float* const* y, bool is_word, float* h, float* gradient, float* e) {
    float* one[] = {h};
    Step mean = s;
    mean.x = one;
    mean.rows = 1;
    errors<S, M>(mean, y, is_word, e);
    for (std::size_t i = 0; i < s.width; i += S::kSize) {
        const auto x = S::load(h + i);
        auto g = S::load(gradient + i);
        for (int k = 0; k < M; ++k) {
            const auto q = S::all(e[k]);
            const auto row = S::load(y[k] + i);
            g = S::multiply_add(q, row, g);
            S::store(y[k] + i, S::multiply_add(q, x, row));
        }
        S::store(gradient + i, g);
    }
}

template <class Call>
void by_count(std::size_t count, Call call) {
    switch (count) {
        case 1:
            return call.template operator()<1>();
        case 2:
            return call.template operator()<2>();
        case 3:
            return call.template operator()<3>();
        case 4:
            return call.template operator()<4>();
        case 5:
            return call.template operator()<5>();
        default:
            return call.template operator()<static_cast<int>(kGroup)>();
    }
}

template <class S>
void window(const Step& s) {
    for (std::size_t first = 0; first < s.targets; first += kGroup) {
        const std::size_t left = s.targets - first;
        by_count(left < kGroup ? left : kGroup,
                 [&]<int M>() { window_of<S, M>(s, s.y + first, first == 0); });
    }
}

template <class S>
void bag(const Step& s) {
    float* h = s.scratch;  // rows of the scratch are aligned if its start is
    float* gradient = h + s.width;
    float* e = gradient + s.width;
    const auto part = S::all(1.0F / static_cast<float>(s.rows));
    for (std::size_t i = 0; i < s.width; i += S::kSize) {
        auto sum = S::load(s.x[0] + i);
        for (std::size_t a = 1; a < s.rows; ++a) sum = S::add(sum, S::load(s.x[a] + i));
        S::store(h + i, S::multiply(sum, part));
        S::store(gradient + i, S::zero());
    }
    for (std::size_t first = 0; first < s.targets; first += kGroup) {
        const std::size_t left = s.targets - first;
        by_count(left < kGroup ? left : kGroup,
                 [&]<int M>() { bag_of<S, M>(s, s.y + first, first == 0, h, gradient, e); });
    }
    for (std::size_t i = 0; i < s.width; i += S::kSize) {
        const auto g = S::load(gradient + i);
        for (std::size_t a = 0; a < s.rows; ++a) S::store(s.x[a] + i, S::add(S::load(s.x[a] + i), g));
    }
}

template <class S>
float fit(const Pair& p) {
    const float b_w = p.w[p.bias], b_v = p.v[p.bias];
    const float G_w = p.w_squares[p.bias], G_v = p.v_squares[p.bias];
    typename S::Vector sum[1] = {S::zero()};
    for (std::size_t i = 0; i < p.width; i += S::kSize) {
        sum[0] = S::multiply_add(S::load(p.w + i), S::load(p.v + i), sum[0]);
    }
    float dot[1];
    S::template totals<1>(sum, dot);
    const float difference =
        dot[0] - b_w * b_v + b_w + b_v - p.log_x;  // the dot product includes the product of the biases
    const float g = p.rate * p.weight * difference;
    const auto q = S::all(g);
    for (std::size_t i = 0; i < p.width; i += S::kSize) {
        const auto w = S::load(p.w + i), v = S::load(p.v + i);
        const auto s_w = S::load(p.w_squares + i), s_v = S::load(p.v_squares + i);
        const auto g_w = S::multiply(q, v), g_v = S::multiply(q, w);
        S::store(p.w + i, S::subtract(w, S::multiply(g_w, S::inverse_root(s_w))));
        S::store(p.v + i, S::subtract(v, S::multiply(g_v, S::inverse_root(s_v))));
        S::store(p.w_squares + i, S::multiply_add(g_w, g_w, s_w));
        S::store(p.v_squares + i, S::multiply_add(g_v, g_v, s_v));
    }
    p.w[p.bias] = b_w - g / __builtin_sqrtf(G_w);  // the gradient of the bias is g
    p.v[p.bias] = b_v - g / __builtin_sqrtf(G_v);
    p.w_squares[p.bias] = G_w + g * g;
    p.v_squares[p.bias] = G_v + g * g;
    return 0.5F * p.weight * difference * difference;
}

template <class S>
constexpr Kernels make_kernels(const char* name) {
    return {&window<S>, &bag<S>, &fit<S>, name};
}

}  // namespace
}  // namespace chainrule
