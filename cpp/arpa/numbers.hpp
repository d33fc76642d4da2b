// The numbers of ARPA files: logarithms to the base 10 in decimal digits.
#pragma once

#include <cstddef>
#include <string_view>

namespace chainrule {

inline constexpr double kLn10 = 2.302585092994045684;
// This and all below it is the logarithm of 0: a probability below 1e-99 does not survive the format.
inline constexpr double kLog10Zero = -99;

// Decimal digits with or without an exponent, "inf" or "nan"; false where the text is something else.
bool read_number(std::string_view text, double& value);

// The natural logarithm of what log10 stands for.
inline double natural_of(double log10) {
    if (log10 <= kLog10Zero) return -__builtin_inf();
    return log10 * kLn10;
}

inline constexpr std::size_t kLongestNumber = 32;

// log10 of what this natural logarithm stands for, in as few digits as are read back as the same float;
// returns where the digits end. −inf is −99.
char* write_log10(float natural, char* into);

}  // namespace chainrule
