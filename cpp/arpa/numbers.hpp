// Numbers in ARPA files: decimal base-10 logarithms.
#pragma once

#include <cstddef>
#include <string_view>

namespace chainrule {

inline constexpr double kLn10 = 2.302585092994045684;
// Values up to this are log10 of 0: the format cannot represent probabilities below 1e-99.
inline constexpr double kLog10Zero = -99;

// Parses a decimal number with optional exponent, "inf" or "nan"; false otherwise.
bool read_number(std::string_view text, double& value);

// Natural logarithm from log10.
inline double natural_of(double log10) {
    if (log10 <= kLog10Zero) return -__builtin_inf();
    return log10 * kLn10;
}

inline constexpr std::size_t kMaxNumber = 32;

// Writes log10 of a natural logarithm with the fewest digits that are read back as the same float; returns
// the end. −inf is written as −99.
char* write_log10(float natural, char* into);

}  // namespace chainrule
