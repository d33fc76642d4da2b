// The Python module `chainrule._core` and the translation of C++ exceptions.
#include <nanobind/stl/string.h>

#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "bindings/bindings.hpp"
#include "vectors/kernels/kernels.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

// The compiler and the instruction set in use, shown by `chainrule doctor`.
struct BuildInfo {
    std::string compiler;  // name and version
    long standard;         // value of __cplusplus
    std::string simd;      // instruction set selected by "auto": "avx512", "avx2", "none"
};

std::string compiler_name() {
#if defined(__clang__)
    return std::string("clang ") + __clang_version__;
#elif defined(__GNUC__)
    return std::string("gcc ") + __VERSION__;
#else
    return "unknown";
#endif
}

BuildInfo build_info() { return {compiler_name(), __cplusplus, choose_kernels("auto").name}; }

}  // namespace

}  // namespace chainrule

NB_MODULE(_core, module) {
    nb::set_leak_warnings(false);  // models may be alive when the interpreter exits
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const chainrule::WriteError& error) {
            errno = error.error;
            PyErr_SetFromErrnoWithFilename(PyExc_OSError, error.path.c_str());
        } catch (const chainrule::Error& error) {
            const bool is_model_file = dynamic_cast<const chainrule::ModelFileError*>(&error) != nullptr;
            const nb::object kind = nb::module_::import_("chainrule.errors")
                                        .attr(is_model_file ? "ModelFileError" : "ChainruleError");
            // File names in a message need not be UTF-8.
            const nb::object text = nb::steal(PyUnicode_DecodeFSDefault(error.what()));
            PyErr_SetObject(kind.ptr(), text.ptr());
        }
    });
    nb::class_<chainrule::BuildInfo>(module, "BuildInfo")
        .def_ro("compiler", &chainrule::BuildInfo::compiler)
        .def_ro("standard", &chainrule::BuildInfo::standard)
        .def_ro("simd", &chainrule::BuildInfo::simd);
    module.def("build_info", &chainrule::build_info, "Compiler, C++ standard and selected instruction set.");
    chainrule::bind_vectors(module);
    chainrule::bind_ngram(module);
    chainrule::bind_ngram_model(module);
    chainrule::bind_kenlm(module);
    chainrule::bind_ngram_memory(module);
    chainrule::bind_arpa(module);
    chainrule::bind_text_reader(module);
    chainrule::bind_text(module);
    chainrule::bind_ngram_partition(module);
    chainrule::bind_duplicates(module);
    chainrule::bind_speller(module);
}
