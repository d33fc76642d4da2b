#include "build_info.hpp"

namespace chainrule {

namespace {

std::string compiler_name() {
#if defined(__clang__)
    return std::string("clang ") + __clang_version__;
#elif defined(__GNUC__)
    return std::string("gcc ") + __VERSION__;
#else
    return "unknown";
#endif
}

std::string widest_simd() {
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return "avx512f";
    if (__builtin_cpu_supports("avx2")) return "avx2";
#endif
    return "none";
}

}  // namespace

BuildInfo build_info() { return {compiler_name(), __cplusplus, widest_simd()}; }

}  // namespace chainrule
