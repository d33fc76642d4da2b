// Co-occurrences and GloVe, for Python.
#include "vectors/glove.hpp"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <filesystem>
#include <memory>
#include <tuple>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/locked.hpp"
#include "vectors/cooccurrence.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

using Counting = OneAtATime<Cooccurrence>;
using Learning = OneAtATime<Glove>;

void make_counting(Counting* self, const std::filesystem::path& file, std::uint64_t numbers,
                   const AnyArray& number_of, std::size_t words, const std::filesystem::path& out,
                   std::size_t window, std::uint64_t bytes, std::size_t threads, std::uint64_t seed) {
    const auto number_of_span = span_of<std::int32_t>(number_of, "number_of", "int32");
    const CooccurrenceConfig config{window, bytes, threads, seed};
    const nb::gil_scoped_release free;
    new (self) Counting(
        std::make_unique<Cooccurrence>(config, file.string(), numbers, number_of_span, words, out.string()));
}

void make_learning(Learning* self, const std::filesystem::path& file, std::uint64_t records,
                   std::size_t words, std::size_t dimensions, std::size_t epochs, float rate, double x_max,
                   double alpha, std::size_t threads, std::uint64_t seed, const std::string& simd) {
    const GloveConfig config{dimensions, epochs, rate, x_max, alpha, threads, seed, simd};
    const nb::gil_scoped_release free;
    new (self) Learning(std::make_unique<Glove>(config, file.string(), records, words));
}

nb::ndarray<nb::numpy, float> result(Learning& self) {
    std::size_t words = 0, dimensions = 0;
    std::vector<float> made;
    self.use([&](const Glove& glove) {
        words = glove.words();
        dimensions = glove.dimensions();
        made.resize(words * dimensions);
        glove.result(made);
    });
    return array_of<float>(std::move(made), {words, dimensions});
}

void bind_counting(nb::module_& module) {
    nb::class_<Counting>(module, "Cooccurrence",
                         "How often words stand near each other, into a file of records.")
        .def("__init__", &make_counting, nb::arg("file"), nb::arg("numbers"), nb::arg("number_of"),
             nb::arg("words"), nb::arg("out"), nb::kw_only(), nb::arg("window"), nb::arg("bytes"),
             nb::arg("threads"), nb::arg("seed"))
        .def(
            "run",
            [](Counting& self, double seconds) { return self.use([&](auto& c) { return c.run(seconds); }); },
            nb::arg("seconds"))
        .def("counted",
             [](Counting& self) {
                 const CountedSoFar found = self.use([](const auto& c) { return c.counted(); });
                 return std::make_tuple(found.is_merging, found.done, found.of);
             })
        .def_prop_ro("records",
                     [](Counting& self) { return self.use([](const auto& c) { return c.records(); }); })
        .def_prop_ro("runs", [](Counting& self) { return self.use([](const auto& c) { return c.runs(); }); });
}

void bind_learning(nb::module_& module) {
    nb::class_<Learning>(module, "Glove", "GloVe by AdaGrad over a file of co-occurrence records.")
        .def("__init__", &make_learning, nb::arg("file"), nb::arg("records"), nb::arg("words"), nb::kw_only(),
             nb::arg("dimensions"), nb::arg("epochs"), nb::arg("rate"), nb::arg("x_max"), nb::arg("alpha"),
             nb::arg("threads"), nb::arg("seed"), nb::arg("simd"))
        .def(
            "run",
            [](Learning& self, double seconds) { return self.use([&](auto& g) { return g.run(seconds); }); },
            nb::arg("seconds"))
        .def("learnt",
             [](Learning& self) {
                 const Fitted found = self.use([](const auto& g) { return g.learnt(); });
                 return std::make_tuple(found.pairs, found.of, found.cost);
             })
        .def_prop_ro(
            "simd",
            [](Learning& self) { return self.use([](const auto& g) { return std::string(g.simd()); }); })
        .def("result", &result);
}

}  // namespace

void bind_glove(nb::module_& module) {
    bind_counting(module);
    bind_learning(module);
}

}  // namespace chainrule
