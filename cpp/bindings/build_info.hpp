// What this extension was compiled with and what the processor offers; read by `chainrule doctor`.
#pragma once

#include <string>

namespace chainrule {

struct BuildInfo {
    std::string compiler;  // name and version
    long standard;         // value of __cplusplus
    std::string simd;      // the vector instructions that "auto" takes here: "avx512", "avx2", "none"
};

BuildInfo build_info();

}  // namespace chainrule
