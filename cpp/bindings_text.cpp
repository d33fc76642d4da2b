#include "bindings.hpp"

namespace nb = nanobind;

namespace chainrule {

void bind_text(nb::module_& module) { (void)module; }

}  // namespace chainrule
