// Python bindings of n-gram counting and external training.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.hpp"
#include "bindings/ngram.hpp"
#include "ngram/build/count.hpp"
#include "ngram/build/external.hpp"
#include "ngram/build/memory_budget.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

// Context of each row, from the first row of each context.
UninitializedBuffer<std::uint32_t> contexts_of(const UninitializedBuffer<std::uint32_t>& first) {
    const std::size_t contexts = first.size() - 1;
    UninitializedBuffer<std::uint32_t> result(first[contexts]);
    for (std::size_t h = 0; h < contexts; ++h) {
        std::fill(result.begin() + first[h], result.begin() + first[h + 1], static_cast<std::uint32_t>(h));
    }
    return result;
}

UninitializedBuffer<std::uint32_t> zeros(std::size_t size) {
    UninitializedBuffer<std::uint32_t> result(size);
    std::fill(result.begin(), result.end(), 0u);
    return result;
}

nb::list counts(const AnyArray& ids, std::int64_t order, std::int64_t vocabulary, std::int64_t bos,
                std::int64_t eos, bool is_line, std::int64_t threads) {
    const auto text = checked_span<std::int32_t>(ids, "ids", "int32");
    const ModelMetadata metadata = model_metadata(vocabulary, bos, eos, -1, false, !is_line, true, 0.0);
    const std::uint32_t n = checked_number(order, 1, kMaxQueryOrder, "order");
    const std::size_t workers = checked_threads(threads);
    Counts result = [&] {
        const nb::gil_scoped_release free;
        Counts counted = count_ngrams(
            make_tokens(text, metadata.vocabulary, metadata.begin, metadata.end, !is_line), n, workers);
        for (Level& level : counted.levels) {
            level.continuation = {};
            level.first = contexts_of(level.first);
            if (!level.suffix.size()) level.suffix = zeros(level.size());  // order 1
        }
        return counted;
    }();
    nb::list levels;
    for (Level& level : result.levels) {
        nb::dict arrays;
        arrays["begins"] = nb::make_tuple(level.begins_from, level.begins_to);
        arrays["context"] = to_numpy(std::move(level.first));
        arrays["word"] = to_numpy(std::move(level.word));
        arrays["suffix"] = to_numpy(std::move(level.suffix));
        arrays["count"] = to_numpy(std::move(level.count));
        levels.append(arrays);
    }
    return levels;
}

// Ids of a file, or of an array that must not change meanwhile.
std::unique_ptr<IdSource> source_of(const nb::object& ids) {
    if (nb::isinstance<nb::str>(ids))
        return std::make_unique<IdFile>(nb::cast<std::filesystem::path>(ids).string());
    return std::make_unique<IdArray>(checked_span<std::int32_t>(nb::cast<AnyArray>(ids), "ids", "int32"));
}

// Reports progress to Python and lets it interrupt the training, also by Ctrl-C.
std::function<void(std::size_t, std::size_t)> reporter(const nb::object& progress) {
    return [&progress](std::size_t done, std::size_t of) {
        const nb::gil_scoped_acquire held;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        if (!progress.is_none()) progress(done, of);
    };
}

std::tuple<nb::list, nb::list> train_within(
    const nb::object& ids, std::int64_t order, std::int64_t vocabulary, std::int64_t bos, std::int64_t eos,
    std::int64_t unk, bool is_closed, bool is_stream, const std::vector<std::int64_t>& cut_offs,
    std::int64_t memory, const std::filesystem::path& folder, const std::filesystem::path& out_path,
    const nb::object& names, const std::string& layout, std::int64_t bits, std::int64_t threads,
    const nb::object& progress, std::int64_t records, std::int64_t max_rows, std::int64_t max_count) {
    const std::unique_ptr<IdSource> source = source_of(ids);
    ModelMetadata metadata = model_metadata(vocabulary, bos, eos, unk, is_closed, is_stream, true, 0.0);
    metadata.holds_suffixes = std::ranges::all_of(cut_offs, [](std::int64_t cut) { return cut == 0; });
    const LayoutChoice choice = layout_choice(layout, bits);
    ExternalOptions options;
    options.order = checked_number(order, 1, kMaxOrders, "order");
    options.unknown = metadata.is_closed ? metadata.unknown : kEveryWord;
    for (const std::int64_t cut : cut_offs)
        options.cut_offs.push_back(checked_number(cut, 0, 0xFFFFFFFF, "a cut-off"));
    if (memory < 0) throw ArgumentError("memory is " + std::to_string(memory) + "; give a number of bytes");
    options.memory = static_cast<std::uint64_t>(memory);
    options.folder = folder.string();
    options.threads = checked_threads(threads);
    options.is_small = choice.kind == LayoutKind::small;
    options.is_quantized = choice.bits != 0;
    options.records = checked_number(records, 0, 0x7FFFFFFF, "records");
    options.max_rows = checked_number(max_rows, 1, 0xFFFFFFFE, "max_rows");
    options.max_count = checked_number(max_count, 1, 0xFFFFFFFF, "max_count");
    options.progress = reporter(progress);
    options.check_interrupt = [] {
        const nb::gil_scoped_acquire held;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    };
    const auto spelled = word_list(names);
    const std::string out = out_path.string();
    // Checked before training, because the writer would reject it afterwards.
    if (spelled && spelled->size() != metadata.vocabulary)
        throw ArgumentError("there are " + std::to_string(spelled->size()) + " names for " +
                            std::to_string(metadata.vocabulary) + " words");
    if (std::filesystem::exists(out))
        throw ArgumentError(out + " already exists; remove it or choose another name");
    std::vector<Discounts> discounts;
    {
        const nb::gil_scoped_release free;
        ExternalModel result = estimate_external(
            *source, {metadata.vocabulary, metadata.begin, metadata.end, metadata.is_stream}, options);
        trim_heap();
        const FileMetadata about = metadata_of(*result.rows, metadata, choice);
        write_model(out, about, model_sections(*result.rows, about, spelled, result.writers), result.writers);
        discounts = std::move(result.discounts);
    }
    nb::list of, why;
    for (const Discounts& D : discounts) {
        of.append(nb::make_tuple(D.of[1], D.of[2], D.of[3]));
        why.append(nb::str(fallback_reason(D).c_str()));
    }
    return {of, why};
}

TrainingSize training_size(std::int64_t tokens, std::int64_t vocabulary, std::int64_t order,
                           const std::string& layout, std::int64_t bits) {
    const LayoutChoice choice = layout_choice(layout, bits);
    TrainingSize size;
    if (tokens < 0) throw ArgumentError("tokens is " + std::to_string(tokens) + "; give 0 or more");
    size.tokens = static_cast<std::uint64_t>(tokens);
    size.vocabulary = checked_number(vocabulary, 2, kMaxWords, "vocabulary_size");
    size.order = checked_number(order, 1, kMaxOrders, "order");
    size.is_small = choice.kind == LayoutKind::small;
    size.is_quantized = choice.bits != 0;
    return size;
}

}  // namespace

void bind_ngram(nb::module_& module) {
    module.def(
        "ngram_counts", &counts, nb::arg("ids"), nb::arg("order"), nb::arg("vocabulary_size"), nb::arg("bos"),
        nb::arg("eos"), nb::arg("is_line"), nb::arg("threads"),
        "Count the n-grams of word ids with `eos` after each line: arrays by order, and the rows that begin "
        "with `bos`.");
}

void bind_ngram_memory(nb::module_& module) {
    module.def("ngram_train_within", &train_within, nb::arg("ids"), nb::arg("order"),
               nb::arg("vocabulary_size"), nb::arg("bos"), nb::arg("eos"), nb::arg("unk") = -1,
               nb::arg("is_closed") = false, nb::arg("is_stream") = false,
               nb::arg("cut_offs") = std::vector<std::int64_t>(), nb::arg("memory"), nb::arg("folder"),
               nb::arg("out"), nb::arg("names").none() = nb::none(), nb::arg("layout") = "fast",
               nb::arg("bits") = 0, nb::arg("threads") = 1, nb::arg("progress").none() = nb::none(),
               nb::arg("records") = 0, nb::arg("max_rows") = 0xFFFFFFFE, nb::arg("max_count") = 0xFFFFFFFF,
               "As NgramModel.train, but writes the model file `out` and limits the process to `memory` "
               "bytes, with temporary files in `folder`. `ids` is an array or the name of a file of int32; "
               "`progress(done, of)` is called repeatedly; `records` is the maximum sorted at once, 0 for "
               "as many as fit; `max_rows` is the maximum of one order; counts from `max_count` on are "
               "stored apart. Return D1, D2 and D3+ of each order, and the reason for default discounts.");
    module.def("return_large_blocks", &return_large_blocks,
               "Make the allocator return large blocks to the system as soon as they are freed.");
    module.def(
        "memory_in_use",
        [] {
            trim_heap();
            return memory_in_use();
        },
        "The resident memory of the process in bytes, after unused heap memory was returned to the system.");
    module.def(
        "ngram_disk_required",
        [](std::int64_t tokens, std::int64_t vocabulary, std::int64_t order) {
            return disk_required(training_size(tokens, vocabulary, order, "fast", 0));
        },
        nb::arg("tokens"), nb::arg("vocabulary_size"), nb::arg("order"),
        "The bytes of all temporary files of ngram_train_within.");
    module.def(
        "ngram_least_memory",
        [](std::int64_t tokens, std::int64_t vocabulary, std::int64_t order, const std::string& layout,
           std::int64_t bits) {
            trim_heap();
            return minimum_memory(training_size(tokens, vocabulary, order, layout, bits), memory_in_use());
        },
        nb::arg("tokens"), nb::arg("vocabulary_size"), nb::arg("order"), nb::arg("layout") = "fast",
        nb::arg("bits") = 0,
        "The minimum `memory` of ngram_train_within for a text of `tokens` tokens, in this process "
        "in its current state and without names.");
}

}  // namespace chainrule
