#include "bindings.hpp"

namespace nb = nanobind;

namespace chainrule {

void bind_ngram_memory(nb::module_& module) { (void)module; }

}  // namespace chainrule
