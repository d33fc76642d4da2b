// What a fuzz target provides in addition to LLVMFuzzerTestOneInput.
#pragma once

#include <string>
#include <vector>

namespace chainrule::fuzz {

// Initial inputs.
std::vector<std::string> seeds();

// Dictionary of useful byte sequences.
std::vector<std::string> pieces();

}  // namespace chainrule::fuzz
