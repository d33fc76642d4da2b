#include "bindings/build_info.hpp"

#include "vectors/kernels/kernels.hpp"

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

}  // namespace

BuildInfo build_info() { return {compiler_name(), __cplusplus, choose_kernels("auto").name}; }

}  // namespace chainrule
