// Python bindings of NgramModel for sharded models: splitting, joining, lookup of prefixes and extensions.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "base/parallel.hpp"
#include "bindings/bindings.hpp"
#include "bindings/ngram.hpp"
#include "ngram/format/shards.hpp"
#include "ngram/query/shard_files.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

using Lengths = nb::ndarray<nb::numpy, std::uint8_t>;
using Floats = nb::ndarray<nb::numpy, float>;
using Ids = nb::ndarray<nb::numpy, std::int32_t>;

std::vector<std::uint32_t> bounds_of(const PyNgramModel& self, std::int64_t shards) {
    const std::size_t count = checked_number(shards, 1, std::numeric_limits<std::int32_t>::max(), "shards");
    const nb::gil_scoped_release free;
    return shard_bounds(*self.model->rows(), count);
}

void save_shard(const PyNgramModel& self, const std::filesystem::path& path, std::int64_t from,
                std::int64_t to, std::int64_t threads) {
    const std::size_t workers = checked_threads(threads);
    WordRange range;
    range.to = checked_number(to, 0, self.model->metadata().vocabulary, "the end of the range");
    range.from = checked_number(from, 0, range.to, "the start of the range");
    const nb::gil_scoped_release free;
    write_shard(*self.model, range, path.string(), workers);
}

void save_joined(const nb::list& shards, const std::vector<std::int64_t>& bounds, bool holds_suffixes,
                 const std::filesystem::path& path, std::int64_t threads) {
    const std::size_t workers = checked_threads(threads);
    std::vector<std::shared_ptr<const Model>> models;
    for (const nb::handle shard : shards) models.push_back(nb::cast<const PyNgramModel&>(shard).model);
    std::vector<std::uint32_t> limits;
    for (const std::int64_t bound : bounds) limits.push_back(checked_number(bound, 0, kMaxWords, "a bound"));
    const nb::gil_scoped_release free;
    join_shards(models, limits, holds_suffixes, path.string(), workers);
}

void check_word(const PyNgramModel& self, std::int64_t word) {
    if (word >= self.model->metadata().vocabulary)
        throw ArgumentError("there is no word with the id " + std::to_string(word) + " in the model");
}

std::tuple<Lengths, Floats, Floats> prefixes(const PyNgramModel& self, const AnyArray& words,
                                             std::int64_t threads) {
    const std::size_t workers = checked_threads(threads), n = self.model->order();
    const auto values = checked_span<std::int32_t>(words, "words", "int32", 2);
    if (words.shape(1) != n) throw ArgumentError("words must have a column for each order of the model");
    for (const std::int32_t word : values) check_word(self, word);
    const std::size_t rows = words.shape(0);
    std::vector<std::uint8_t> lengths(rows);
    std::vector<float> log_probs(rows * n), log_backoffs(rows * (n - 1));
    {
        const nb::gil_scoped_release free;
        const std::size_t parts = std::clamp<std::size_t>(workers, 1, std::max<std::size_t>(rows, 1));
        parallel_for(parts, [&](std::size_t t) {
            const std::size_t from = part_begin(rows, t, parts), to = part_begin(rows, t + 1, parts);
            self.model->prefixes({values.subspan(from * n, (to - from) * n), lengths.data() + from,
                                  log_probs.data() + from * n, log_backoffs.data() + from * (n - 1)});
        });
    }
    return {to_numpy_array(std::move(lengths), {rows}), to_numpy_array(std::move(log_probs), {rows, n}),
            to_numpy_array(std::move(log_backoffs), {rows, n - 1})};
}

std::tuple<bool, float, Ids, Floats> extensions(const PyNgramModel& self, const AnyArray& context) {
    const auto values = checked_span<std::int32_t>(context, "context", "int32");
    if (values.size() >= self.model->order()) throw ArgumentError("the context is too long for the model");
    for (const std::int32_t word : values) {
        check_word(self, word);
        if (word < 0) throw ArgumentError("a context has no negative ids");
    }
    Extensions result;
    {
        const nb::gil_scoped_release free;
        result = self.model->extensions(values);
    }
    const std::size_t size = result.words.size();
    return {result.is_stored, result.log_backoff, to_numpy_array(std::move(result.words), {size}),
            to_numpy_array(std::move(result.log_probs), {size})};
}

}  // namespace

void bind_shards(NgramClass& bound) {
    bound
        .def_prop_ro("holds_suffixes",
                     [](const PyNgramModel& self) { return self.model->metadata().holds_suffixes; })
        .def("shard_bounds", &bounds_of, nb::arg("shards"),
             "Return the limits of ranges of first words with about equal numbers of n-grams.")
        .def("save_shard", &save_shard, nb::arg("path"), nb::arg("start"), nb::arg("end"),
             nb::arg("threads") = 1,
             "Write the n-grams whose first word is in [start, end), and all unigrams, to a new model file.")
        .def_static("join_shards", &save_joined, nb::arg("shards"), nb::arg("bounds"),
                    nb::arg("holds_suffixes"), nb::arg("path"), nb::arg("threads") = 1,
                    "Write shards, in order, to one new model file.")
        .def("prefixes", &prefixes, nb::arg("words"), nb::arg("threads") = 1,
             "(W, n) word sequences, padded with -1 -> (W,) lengths of the longest stored prefix, (W, n) log "
             "p "
             "and (W, n − 1) log back-off weights of the prefixes.")
        .def(
            "extensions", &extensions, nb::arg("context"),
            "Return whether a context is stored, its log back-off weight, and the words stored after it with "
            "their log p; for the empty context, all words.");
}

}  // namespace chainrule
