// The door to Python: arrays and values in and out, nothing else. No other file here knows Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "build_info.hpp"

namespace nb = nanobind;

NB_MODULE(_core, module) {
    nb::class_<chainrule::BuildInfo>(module, "BuildInfo")
        .def_ro("compiler", &chainrule::BuildInfo::compiler)
        .def_ro("standard", &chainrule::BuildInfo::standard)
        .def_ro("simd", &chainrule::BuildInfo::simd);
    module.def("build_info", &chainrule::build_info, "What the extension was built with and what runs here.");
}
