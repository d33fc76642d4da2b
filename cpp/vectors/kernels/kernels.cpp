#include "vectors/kernels/kernels.hpp"

#include "base/error.hpp"

namespace chainrule {

namespace {

bool runs(const Kernels* kernels, const std::string& name) {
    if (!kernels) return false;
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
    if (name == "avx512") return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    if (name == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return name == "none";
}

}  // namespace

const Kernels& choose_kernels(const std::string& name) {
    for (const Kernels* kernels : {kernels_avx512(), kernels_avx2(), kernels_plain()}) {
        const std::string candidate = kernels ? kernels->name : "";
        if ((name == "auto" || name == candidate) && runs(kernels, candidate)) return *kernels;
    }
    throw ArgumentError("vector instructions '" + name + "' do not run on this processor; choose auto");
}

}  // namespace chainrule
