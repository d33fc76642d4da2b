// The natural logarithm of positive normal doubles and of 0, and the validity check for stored logarithms.
//
// The function is vectorisable and uses only IEEE additions, multiplications and divisions, so that a model
// file has the same bytes on every machine (callers are compiled with -ffp-contract=off: a fused multiply-add
// rounds differently). With x = 2^k m, m in [√½, √2) and s = (m − 1)/(m + 1): log m = 2 artanh s = 2 (s +
// s³/3 + s⁵/5 + …). |s| < 0.172, so ten terms leave an error below 1e-18.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <numbers>

namespace chainrule {

// Whether a stored value is a valid log-probability or log-weight: neither NaN nor +infinity.
inline bool is_log_value(float value) { return value < std::numeric_limits<float>::infinity(); }

inline double logarithm(double x) {
    constexpr std::uint64_t one = 0x3FF0000000000000, root_of_half = 0x3FE6A09E667F3BCD;
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t exponent = (bits + (one - root_of_half)) >> 52;  // k + 1023, m being in [√½, √2)
    const double m = std::bit_cast<double>(bits - (exponent << 52) + one);
    const double k = std::bit_cast<double>(0x4330000000000000 | exponent) - (4503599627370496.0 + 1023.0);
    const double f = m - 1.0, s = f / (2.0 + f), z = s * s;
    double R = 2.0 / 21.0;  // Σ_j 2 z^j / (2j + 1), j = 1 … 10, by Horner
    R = R * z + 2.0 / 19.0;
    R = R * z + 2.0 / 17.0;
    R = R * z + 2.0 / 15.0;
    R = R * z + 2.0 / 13.0;
    R = R * z + 2.0 / 11.0;
    R = R * z + 2.0 / 9.0;
    R = R * z + 2.0 / 7.0;
    R = R * z + 2.0 / 5.0;
    R = (R * z + 2.0 / 3.0) * z;
    // −∞ for 0 and 0 otherwise, branch-free so that the compiler can vectorise it.
    const std::uint64_t is_zero = ((bits | (0 - bits)) >> 63) - 1;
    // log m = 2s + s R; 2s = f − s f has a smaller rounding error.
    return k * std::numbers::ln2 + (f - s * (f - R)) + std::bit_cast<double>(is_zero & 0xFFF0000000000000);
}

}  // namespace chainrule
