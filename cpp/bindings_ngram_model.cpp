#include "bindings.hpp"

namespace nb = nanobind;

namespace chainrule {

void bind_ngram_model(nb::module_& module) { (void)module; }

}  // namespace chainrule
