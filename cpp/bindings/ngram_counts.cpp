// N-gram counts for Python: what the smoothings that are written in NumPy start from.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/ngram.hpp"
#include "ngram/build/count.hpp"
#include "ngram/build/tokens.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

// The context of each row, from where each context's rows begin.
Array<std::uint32_t> contexts_of(const Array<std::uint32_t>& first) {
    const std::size_t contexts = first.size() - 1;
    Array<std::uint32_t> made(first[contexts]);
    for (std::size_t h = 0; h < contexts; ++h) {
        std::fill(made.begin() + first[h], made.begin() + first[h + 1], static_cast<std::uint32_t>(h));
    }
    return made;
}

Array<std::uint32_t> zeros(std::size_t size) {
    Array<std::uint32_t> made(size);
    std::fill(made.begin(), made.end(), 0u);
    return made;
}

nb::list counts(const AnyArray& ids, std::int64_t order, std::int64_t vocabulary, std::int64_t bos,
                std::int64_t eos, bool is_line, std::int64_t threads) {
    const auto text = span_of<std::int32_t>(ids, "ids", "int32");
    const ModelFacts facts = model_facts(vocabulary, bos, eos, -1, false, !is_line, true, 0.0);
    const std::uint32_t n = number_in(order, 1, kMostOrderAsked, "order");
    const std::size_t workers = threads_of(threads);
    Counts made = [&] {
        const nb::gil_scoped_release free;
        Counts found =
            count_ngrams(take_ids(text, facts.vocabulary, facts.begin, facts.end, !is_line), n, workers);
        for (Level& level : found.levels) {
            level.continuation = {};
            level.first = contexts_of(level.first);
            if (!level.suffix.size()) level.suffix = zeros(level.size());  // order 1
        }
        return found;
    }();
    nb::list levels;
    for (Level& level : made.levels) {
        nb::dict arrays;
        arrays["begins"] = nb::make_tuple(level.begins_from, level.begins_to);
        arrays["context"] = handed_over(std::move(level.first));
        arrays["word"] = handed_over(std::move(level.word));
        arrays["suffix"] = handed_over(std::move(level.suffix));
        arrays["count"] = handed_over(std::move(level.count));
        levels.append(arrays);
    }
    return levels;
}

}  // namespace

void bind_ngram(nb::module_& module) {
    module.def(
        "ngram_counts", &counts, nb::arg("ids"), nb::arg("order"), nb::arg("vocabulary_size"), nb::arg("bos"),
        nb::arg("eos"), nb::arg("is_line"), nb::arg("threads"),
        "All n-grams of word numbers, `eos` after each line: by order their arrays, and which rows begin "
        "with `bos`.");
}

}  // namespace chainrule
