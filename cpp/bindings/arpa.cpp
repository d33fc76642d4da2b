// Python bindings of ARPA reading and writing.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "arpa/reader.hpp"
#include "arpa/writer.hpp"
#include "bindings/bindings.hpp"
#include "bindings/ngram.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

constexpr std::size_t kMaxShown = 60;  // characters

// Bytes of a file as a quoted Python string, truncated to one line.
nb::object shown(const std::string& bytes) {
    constexpr std::size_t enough = 1000;
    const auto size = static_cast<Py_ssize_t>(std::min(bytes.size(), enough));
    nb::object text = nb::steal(PyUnicode_DecodeUTF8(bytes.data(), size, "replace"));
    if (!text.is_valid()) throw nb::python_error();
    if (nb::len(text) > kMaxShown) {
        text = nb::steal(PyUnicode_Substring(text.ptr(), 0, static_cast<Py_ssize_t>(kMaxShown)));
        text = text + nb::str("…");
    }
    return nb::repr(text);
}

[[noreturn]] void raise_input_error(const std::string& name, const ArpaParseError& error) {
    const std::string where = error.line ? ", line " + std::to_string(error.line) + ": " : " ";
    nb::object message = nb::str((name + where + error.before).c_str());
    if (!error.shown.empty()) message = message + shown(error.shown);
    message = message + nb::str(error.after.c_str());
    PyErr_SetObject(nb::module_::import_("chainrule.errors").attr("InputError").ptr(), message.ptr());
    throw nb::python_error();
}

ArpaProgress progress_to(const nb::callable& progress) {
    return [&progress](std::size_t order, std::uint64_t done, std::uint64_t of) {
        const nb::gil_scoped_acquire held;
        progress(order, done, of);
    };
}

// A file that was read; its rows become a model once.
struct PyArpaFile {
    std::shared_ptr<ArpaModel> read;
};

PyArpaFile read(const nb::callable& next, const std::string& name, std::int64_t threads,
                const nb::callable& progress) {
    const std::size_t workers = checked_threads(threads);
    nb::object block;  // keeps the memory alive until the next read
    const NextBlock next_block = [&]() -> std::string_view {
        const nb::gil_scoped_acquire held;
        block = next();
        return TextViews::view_of(block.ptr());
    };
    try {
        const nb::gil_scoped_release free;
        return {std::make_shared<ArpaModel>(read_arpa(next_block, workers, progress_to(progress)))};
    } catch (const ArpaParseError& error) {
        raise_input_error(name, error);
    }
}

PyNgramModel model_of(const PyArpaFile& self, const std::string& layout, std::int64_t bits,
                      std::int64_t threads, bool is_normalized) {
    const LayoutChoice choice = layout_choice(layout, bits);
    const std::size_t workers = checked_threads(threads);
    const nb::gil_scoped_release free;
    auto names = std::make_shared<WordList>();
    for (const std::string& name : self.read->names) names->add(name);
    ModelMetadata metadata = self.read->metadata();
    metadata.is_normalized = is_normalized;
    return {Model::of(TableRows(self.read->levels), metadata, names, choice, workers)};
}

void write(const PyNgramModel& model, const std::vector<std::string>& names, std::int64_t left_out,
           std::int64_t threads, const nb::callable& sink, const nb::callable& progress) {
    if (names.size() != model.model->metadata().vocabulary)
        throw ArgumentError("each word of the model needs a name");
    ArpaOutput out;
    out.write = [&sink](std::string_view text) {
        const nb::gil_scoped_acquire held;
        sink(nb::bytes(text.data(), text.size()));
    };
    out.progress = progress_to(progress);
    if (left_out >= 0) out.left_out = static_cast<std::uint32_t>(left_out);
    out.threads = checked_threads(threads);
    const std::shared_ptr<const Model> shared = model.model;
    const nb::gil_scoped_release free;
    write_arpa(*shared->rows(), names, out);
}

}  // namespace

void bind_arpa(nb::module_& module) {
    nb::class_<PyArpaFile>(module, "ArpaFile", "The contents of an ARPA file, sorted.")
        .def_static("read", &read, nb::arg("next_block"), nb::arg("name"), nb::arg("threads"),
                    nb::arg("progress"),
                    "Read the bytes returned by `next_block()` until b''; `name` is used in error messages. "
                    "`progress(order, done, of)` is called with order 0 while tables are built.")
        .def_prop_ro(
            "names", [](const PyArpaFile& self) { return self.read->names; },
            "Names by word id: <unk>, the words in file order, <s>, </s>.")
        .def_prop_ro("has_unk", [](const PyArpaFile& self) { return self.read->has_unknown; })
        .def_prop_ro("has_eos", [](const PyArpaFile& self) { return self.read->has_end; })
        .def("model", &model_of, nb::arg("layout") = "fast", nb::arg("bits") = 0, nb::arg("threads") = 1,
             nb::arg("is_normalized") = true, "Build a model.");
    module.def("write_arpa", &write, nb::arg("model"), nb::arg("names"), nb::arg("left_out"),
               nb::arg("threads"), nb::arg("sink"), nb::arg("progress"),
               "Write an ARPA file to `sink(bytes)` in pieces, without n-grams that contain the word "
               "`left_out` (-1: all n-grams).");
}

}  // namespace chainrule
