// The speller for Python.
#include "speller/speller.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.hpp"
#include "bindings/ngram.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

// `levels`: of each length the keys, the log-probabilities, the logarithms of the weights.
void make_speller(Speller* self, const AnyArray& alphabet, const std::vector<std::vector<AnyArray>>& levels,
                  double log_others, double log_outside, bool is_single, std::string placeholder,
                  double log_placeholder) {
    const std::span<const std::uint32_t> codes = checked_span<std::uint32_t>(alphabet, "alphabet", "uint32");
    std::vector<SpellerLevel> result;
    for (const std::vector<AnyArray>& level : levels) {
        if (level.size() != 3) throw Error("a level of the speller has three arrays");
        result.push_back({checked_span<std::int64_t>(level[0], "keys", "int64"),
                          checked_span<float>(level[1], "log_probs", "float32"),
                          checked_span<float>(level[2], "log_backoffs", "float32")});
    }
    new (self) Speller({{codes.begin(), codes.end()},
                        log_others,
                        log_outside,
                        is_single,
                        std::move(placeholder),
                        log_placeholder},
                       result);
}

nb::ndarray<nb::numpy, double> log_probs(const Speller& self, const nb::object& words) {
    const TextViews texts(words);
    std::vector<double> result;
    {
        const nb::gil_scoped_release free;
        Speller::CachedScorer reader(self);
        result.reserve(texts.views().size());
        for (const std::string_view word : texts.views()) result.push_back(reader.log_prob(word));
    }
    const std::size_t N = result.size();
    return to_numpy_array(std::move(result), {N});
}

}  // namespace

void bind_speller(nb::module_& module) {
    nb::class_<Speller>(module, "Speller", "Character n-gram model of the spelling of unknown words.")
        .def("__init__", &make_speller, nb::arg("alphabet"), nb::arg("levels"), nb::arg("log_others"),
             nb::arg("log_outside"), nb::arg("is_single"), nb::arg("placeholder") = "",
             nb::arg("log_placeholder") = 0.0)
        .def("log_probs", &log_probs, nb::arg("words"), "Return log p(spelling | unknown) of each word.");
}

}  // namespace chainrule
