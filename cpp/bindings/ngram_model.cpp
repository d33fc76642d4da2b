// Python bindings of NgramModel: creation from counts, tables or files, and saving.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <tuple>
#include <utility>

#include "base/logarithm.hpp"
#include "bindings/bindings.hpp"
#include "bindings/ngram.hpp"
#include "ngram/build/count.hpp"
#include "ngram/build/kneser_ney.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

constexpr std::size_t kPiece = 1 << 16;  // rows read at a time

// A file name as `os.fsdecode` returns it; it need not be UTF-8.
nb::object name_of(const std::string& path) {
    return nb::steal(PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

PyNgramModel open_model(const std::filesystem::path& path, bool verify, std::uint64_t verified_at_open,
                        std::uint64_t largest_copy) {
    const nb::gil_scoped_release free;
    return {Model::open(path.string(), verify, verified_at_open, largest_copy)};
}

// One order from ascending keys = context row · V + word.
TableLevel level_of(std::span<const std::int64_t> keys, std::span<const float> log_probs,
                    std::span<const float> log_backoffs, std::size_t n, std::uint64_t contexts,
                    std::uint32_t V) {
    const auto refuse = [&] {
        throw ArgumentError("the n-gram table of order " + std::to_string(n) + " is not sound");
    };
    const std::size_t size = keys.size();
    if (log_probs.size() != size || log_backoffs.size() != size || size >= kMaxRows) refuse();
    TableLevel level{UninitializedBuffer<std::uint32_t>(size),
                     UninitializedBuffer<std::uint32_t>(contexts + 1), UninitializedBuffer<float>(size),
                     UninitializedBuffer<float>(size)};
    std::uint64_t opened = 0;  // number of contexts whose first row is known
    std::int64_t last = -1;
    for (std::size_t i = 0; i < size; ++i) {
        if (keys[i] <= last) refuse();
        last = keys[i];
        const std::uint64_t context = static_cast<std::uint64_t>(keys[i]) / V;
        if (context >= contexts) refuse();
        level.word[i] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(keys[i]) - context * V);
        while (opened <= context) level.first[opened++] = static_cast<std::uint32_t>(i);
        if (!is_log_value(log_probs[i]) || !is_log_value(log_backoffs[i])) refuse();
        level.log_prob[i] = std::min(log_probs[i], 0.0f);  // clamps rounding errors
        level.log_backoff[i] = log_backoffs[i];
    }
    while (opened <= contexts) level.first[opened++] = static_cast<std::uint32_t>(size);
    return level;
}

PyNgramModel of_tables(const nb::list& tables, std::int64_t vocabulary, std::int64_t bos, std::int64_t eos,
                       std::int64_t unk, bool is_closed, bool is_stream, bool is_normalized,
                       bool starts_at_bos, double log_missing, const nb::object& names,
                       const std::string& layout, std::int64_t bits, std::int64_t threads) {
    ModelMetadata metadata =
        model_metadata(vocabulary, bos, eos, unk, is_closed, is_stream, is_normalized, log_missing);
    metadata.starts_at_begin = starts_at_bos;
    const LayoutChoice choice = layout_choice(layout, bits);
    const std::size_t workers = checked_threads(threads);
    const auto spelled = word_list(names);
    std::vector<TableLevel> levels;
    for (std::size_t k = 0; k < tables.size(); ++k) {
        const nb::dict table = nb::cast<nb::dict>(tables[k]);
        const auto key = nb::cast<AnyArray>(table["key"]);
        const auto log_prob = nb::cast<AnyArray>(table["log_prob"]);
        const auto log_backoff = nb::cast<AnyArray>(table["log_backoff"]);
        levels.push_back(level_of(checked_span<std::int64_t>(key, "key", "int64"),
                                  checked_span<float>(log_prob, "log_prob", "float32"),
                                  checked_span<float>(log_backoff, "log_backoff", "float32"), k + 1,
                                  k ? levels.back().size() : 1, metadata.vocabulary));
    }
    if (levels.empty() || levels[0].size() != metadata.vocabulary) {
        throw ArgumentError("order 1 must have a row for each of " + std::to_string(metadata.vocabulary) +
                            " words");
    }
    levels.back().log_backoff = {};
    const nb::gil_scoped_release free;
    return {Model::of(TableRows(levels), metadata, spelled, choice, workers)};
}

std::tuple<PyNgramModel, nb::list, nb::list> train(const AnyArray& ids, std::int64_t order,
                                                   std::int64_t vocabulary, std::int64_t bos,
                                                   std::int64_t eos, std::int64_t unk, bool is_closed,
                                                   bool is_stream, const std::vector<std::int64_t>& cut_offs,
                                                   const nb::object& names, const std::string& layout,
                                                   std::int64_t bits, std::int64_t threads) {
    const auto text = checked_span<std::int32_t>(ids, "ids", "int32");
    ModelMetadata metadata = model_metadata(vocabulary, bos, eos, unk, is_closed, is_stream, true, 0.0);
    metadata.holds_suffixes = std::ranges::all_of(cut_offs, [](std::int64_t cut) { return cut == 0; });
    const LayoutChoice choice = layout_choice(layout, bits);
    const std::size_t workers = checked_threads(threads);
    const std::uint32_t n = checked_number(order, 1, kMaxQueryOrder, "order");
    std::vector<std::uint32_t> cuts;
    for (const std::int64_t cut : cut_offs) cuts.push_back(checked_number(cut, 0, 0xFFFFFFFF, "a cut-off"));
    const auto spelled = word_list(names);
    std::vector<Discounts> discounts;
    PyNgramModel result;
    {
        const nb::gil_scoped_release free;
        Counts counts = count_ngrams(
            make_tokens(text, metadata.vocabulary, metadata.begin, metadata.end, is_stream), n, workers);
        KneserNey estimate = estimate_kneser_ney(
            std::move(counts), workers, metadata.is_closed ? metadata.unknown : kEveryWord, std::move(cuts));
        discounts = std::move(estimate.discounts);
        result.model = Model::of(TableRows(estimate.levels), metadata, spelled, choice, workers);
    }
    nb::list of, why;
    for (const Discounts& D : discounts) {
        of.append(nb::make_tuple(D.of[1], D.of[2], D.of[3]));
        why.append(nb::str(fallback_reason(D).c_str()));
    }
    return {result, of, why};
}

PyNgramModel convert(const PyNgramModel& self, const std::string& layout, std::int64_t bits,
                     std::int64_t threads) {
    const LayoutChoice choice = layout_choice(layout, bits);
    const std::size_t workers = checked_threads(threads);
    const nb::gil_scoped_release free;
    std::shared_ptr<const WordList> names;
    if (self.model->names()) names = std::make_shared<WordList>(self.model->names()->list());
    return {Model::of(*self.model->rows(), self.model->metadata(), names, choice, workers)};
}

struct Table {
    UninitializedBuffer<std::int64_t> key;
    UninitializedBuffer<float> log_prob, log_backoff;
};

Table table_of(const Rows& rows, std::size_t n, std::uint32_t V) {
    const std::uint64_t size = rows.size(n);
    Table table{UninitializedBuffer<std::int64_t>(size), UninitializedBuffer<float>(size),
                UninitializedBuffer<float>(size)};
    std::vector<std::uint32_t> words(std::min<std::uint64_t>(size, kPiece)), first(kPiece + 1);
    for (std::uint64_t from = 0; from < size; from += kPiece) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, size - from));
        rows.read(n, from, count, words.data(), &table.log_prob[from], &table.log_backoff[from], nullptr);
        for (std::size_t i = 0; i < count; ++i) table.key[from + i] = words[i];
    }
    if (n == 1) return table;
    const std::uint64_t contexts = rows.size(n - 1);
    for (std::uint64_t from = 0; from < contexts; from += kPiece) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, contexts - from));
        rows.read(n - 1, from, count, nullptr, nullptr, nullptr, first.data());
        for (std::size_t h = 0; h < count; ++h) {
            const std::int64_t base = static_cast<std::int64_t>(from + h) * V;
            for (std::uint64_t i = first[h]; i < first[h + 1] && i < size; ++i) table.key[i] += base;
        }
    }
    return table;
}

nb::list tables(const PyNgramModel& self) {
    nb::list result;
    for (std::size_t n = 1; n <= self.model->order(); ++n) {
        Table table = [&] {
            const nb::gil_scoped_release free;
            return table_of(*self.model->rows(), n, self.model->metadata().vocabulary);
        }();
        nb::dict arrays;
        arrays["key"] = to_numpy(std::move(table.key));
        arrays["log_prob"] = to_numpy(std::move(table.log_prob));
        arrays["log_backoff"] = to_numpy(std::move(table.log_backoff));
        result.append(arrays);
    }
    return result;
}

nb::str name_at(const StoredVocabulary& names, std::uint64_t id) {
    const std::string_view name = names.name(static_cast<std::uint32_t>(id));
    return nb::str(name.data(), name.size());
}

const StoredVocabulary& names_in(const PyNgramModel& self) {
    if (!self.model->names()) throw ArgumentError("this model stores word ids only, without a vocabulary");
    return *self.model->names();
}

void bind_metadata(NgramClass& bound) {
    const auto metadata = [](const PyNgramModel& self) -> const ModelMetadata& {
        return self.model->metadata();
    };
    bound.def_prop_ro("order", [](const PyNgramModel& self) { return self.model->order(); })
        .def_prop_ro("vocabulary_size", [=](const PyNgramModel& self) { return metadata(self).vocabulary; })
        .def_prop_ro("bos", [=](const PyNgramModel& self) { return metadata(self).begin; })
        .def_prop_ro("eos", [=](const PyNgramModel& self) { return metadata(self).end; })
        .def_prop_ro("unk",
                     [=](const PyNgramModel& self) {
                         return metadata(self).unknown == kNoWord ? -1 : std::int64_t{metadata(self).unknown};
                     })
        .def_prop_ro("is_closed", [=](const PyNgramModel& self) { return metadata(self).is_closed; })
        .def_prop_ro("is_stream", [=](const PyNgramModel& self) { return metadata(self).is_stream; })
        .def_prop_ro("starts_at_bos",
                     [=](const PyNgramModel& self) { return metadata(self).starts_at_begin; })
        .def_prop_ro("is_normalized", [=](const PyNgramModel& self) { return metadata(self).is_normalized; })
        .def_prop_ro("log_missing",
                     [=](const PyNgramModel& self) { return double{metadata(self).log_missing}; })
        .def_prop_ro("sizes", [](const PyNgramModel& self) { return self.model->file().metadata().sizes; })
        .def_prop_ro("layout",
                     [](const PyNgramModel& self) {
                         return self.model->file().metadata().layout == LayoutKind::fast ? "fast" : "small";
                     })
        .def_prop_ro("bits", [](const PyNgramModel& self) { return self.model->file().metadata().bits; })
        .def_prop_ro("bytes", [](const PyNgramModel& self) { return self.model->file().bytes(); })
        .def_prop_ro("mark", [](const PyNgramModel& self) { return self.model->file().digest(); })
        .def_prop_ro("path", [](const PyNgramModel& self) { return name_of(self.model->file().path()); })
        .def_prop_ro("has_names", [](const PyNgramModel& self) { return self.model->names() != nullptr; });
}

void bind_names(NgramClass& bound) {
    bound
        .def(
            "name",
            [](const PyNgramModel& self, std::uint64_t id) {
                const StoredVocabulary& names = names_in(self);
                if (id >= names.size())
                    throw ArgumentError("there is no word with the id " + std::to_string(id));
                return name_at(names, id);
            },
            nb::arg("id"))
        .def(
            "find",
            [](const PyNgramModel& self, const nb::object& word) {
                return names_in(self).find(TextViews::view_of(word.ptr()));
            },
            nb::arg("word"), "Return the id of a word, or -1.")
        .def("names", [](const PyNgramModel& self) {
            nb::list result;
            const StoredVocabulary& names = names_in(self);
            for (std::uint64_t i = 0; i < names.size(); ++i) result.append(name_at(names, i));
            return result;
        });
}

}  // namespace

void bind_ngram_model(nb::module_& module) {
    NgramClass bound(module, "NgramModel", nb::is_weak_referenceable(),
                     "An n-gram model in memory, or its file mapped. Immutable.");
    bound
        .def_static("open", &open_model, nb::arg("path"), nb::arg("verify") = false,
                    nb::arg("verified_at_open") = kVerifiedAtOpen, nb::arg("largest_copy") = 0,
                    "Open a model file. A file of at most `verified_at_open` bytes is read and verified at "
                    "once, a larger one on access. A file of more than `largest_copy` bytes (0: half of the "
                    "physical memory) is memory-mapped and must not change during a call.")
        .def_static(
            "of_tables", &of_tables, nb::arg("levels"), nb::arg("vocabulary_size"), nb::arg("bos"),
            nb::arg("eos"), nb::arg("unk") = -1, nb::arg("is_closed") = false, nb::arg("is_stream") = false,
            nb::arg("is_normalized") = true, nb::arg("starts_at_bos") = false, nb::arg("log_missing") = 0.0,
            nb::arg("names").none() = nb::none(), nb::arg("layout") = "fast", nb::arg("bits") = 0,
            nb::arg("threads") = 1, "Build a model from tables (key, log_prob, log_backoff) of each order.")
        .def_static("train", &train, nb::arg("ids"), nb::arg("order"), nb::arg("vocabulary_size"),
                    nb::arg("bos"), nb::arg("eos"), nb::arg("unk") = -1, nb::arg("is_closed") = false,
                    nb::arg("is_stream") = false, nb::arg("cut_offs") = std::vector<std::int64_t>(),
                    nb::arg("names").none() = nb::none(), nb::arg("layout") = "fast", nb::arg("bits") = 0,
                    nb::arg("threads") = 1,
                    "Train modified Kneser–Ney on word ids with `eos` after each line. Return the model, D1, "
                    "D2 and D3+ of each "
                    "order, and the reason for default discounts ('' if estimated).")
        .def("convert", &convert, nb::arg("layout") = "fast", nb::arg("bits") = 0, nb::arg("threads") = 1)
        .def("tables", &tables, "Return the tables (key, log_prob, log_backoff) of each order.")
        .def(
            "save",
            [](const PyNgramModel& self, const std::filesystem::path& path) {
                const nb::gil_scoped_release free;
                self.model->file().save(path.string());
            },
            nb::arg("path"))
        .def(
            "verify",
            [](const PyNgramModel& self, std::int64_t threads) {
                const std::size_t workers = checked_threads(threads);
                const nb::gil_scoped_release free;
                self.model->file().begin_call();
                self.model->file().verify_all(workers);
            },
            nb::arg("threads") = 1, "Verify all checksums; raise if the file is damaged.");
    bind_metadata(bound);
    bind_names(bound);
    bind_query(bound);
    bind_sentences(module, bound);
    bind_shards(bound);
}

}  // namespace chainrule
