// What a fuzz target gives the driver beside LLVMFuzzerTestOneInput.
#pragma once

#include <string>
#include <vector>

namespace chainrule::fuzz {

// Inputs to begin with.
std::vector<std::string> seeds();

// Pieces that make more sense than random bytes.
std::vector<std::string> pieces();

}  // namespace chainrule::fuzz
