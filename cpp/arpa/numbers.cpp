#include "arpa/numbers.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <system_error>

namespace chainrule {

namespace {

// Value of a number outside the range of double: infinity or 0, by the position of its first non-zero digit.
double beyond_doubles(std::string_view text) {
    const bool is_negative = text.front() == '-';
    if (is_negative) text.remove_prefix(1);
    const std::size_t exponent_at = std::min(text.find_first_of("eE"), text.size());
    const std::string_view digits = text.substr(0, exponent_at);
    const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size()));
    const auto first = static_cast<std::int64_t>(digits.find_first_of("123456789"));
    std::int64_t exponent = 0;
    if (exponent_at < text.size()) {
        std::size_t i = exponent_at + 1;
        const bool is_small = i < text.size() && text[i] == '-';
        if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
        for (; i < text.size(); ++i)
            exponent = std::min<std::int64_t>(exponent * 10 + (text[i] - '0'), 1'000'000'000);
        if (is_small) exponent = -exponent;
    }
    const double size = point - first + exponent > 0 ? std::numeric_limits<double>::infinity() : 0.0;
    return is_negative ? -size : size;
}

constexpr double kPower[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13};

// Writes `whole` with a decimal point `scale` digits before its end.
char* write_fixed(std::uint64_t whole, int scale, char* into) {
    while (scale > 0 && whole % 10 == 0) whole /= 10, --scale;
    const auto power = static_cast<std::uint64_t>(kPower[scale]);
    into = std::to_chars(into, into + 20, whole / power).ptr;
    if (scale == 0) return into;
    *into++ = '.';
    std::uint64_t rest = whole % power;
    for (int i = scale; i-- > 0; rest /= 10) into[i] = static_cast<char>('0' + rest % 10);
    return into + scale;
}

}  // namespace

bool read_number(std::string_view text, double& value) {
    const auto is_space = [](char c) {
        return c == '\r' || c == '\v' || c == '\f';
    };  // written by some tools
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    if (!text.empty() && text.front() == '+') {
        text.remove_prefix(1);
        if (!text.empty() && text.front() == '-') return false;
    }
    if (text.empty() || text.back() == ')') return false;  // from_chars also parses nan(…)
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size() || error == std::errc::invalid_argument) return false;
    if (error == std::errc::result_out_of_range) value = beyond_doubles(text);
    return true;
}

char* write_log10(float natural, char* into) {
    if (natural == 0) {
        *into++ = '0';
        return into;
    }
    const double log10 = static_cast<double>(natural) / kLn10;
    if (std::isinf(log10)) return std::to_chars(into, into + kMaxNumber, static_cast<int>(kLog10Zero)).ptr;
    const double size = std::abs(log10);
    if (!(size >= 1e-4 && size < 1000)) {
        return std::to_chars(into, into + kMaxNumber, log10, std::chars_format::general, 9).ptr;
    }
    // The relative error of 9 digits is at most 5e-9, less than a tenth of the distance to the next
    // float.
    int before = size >= 100 ? 3 : size >= 10 ? 2 : size >= 1 ? 1 : size >= 0.1 ? 0 : size >= 0.01 ? -1 : -2;
    if (size < 0.001) before = -3;
    if (log10 < 0) *into++ = '-';
    const float expected = std::abs(natural);
    for (int digits = 7;; ++digits) {
        const int scale = digits - before;  // 4 … 12
        const auto whole = static_cast<std::uint64_t>(std::llround(size * kPower[scale]));
        const auto again = static_cast<float>(static_cast<double>(whole) / kPower[scale] * kLn10);
        if (digits == 9 || again == expected) return write_fixed(whole, scale, into);
    }
}

}  // namespace chainrule
