// Python bindings of n-gram training in partitions: functions from bytes to bytes, which the tasks of a
// distributed engine call.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/bindings.hpp"
#include "bindings/ngram.hpp"
#include "ngram/partition/assemble.hpp"
#include "ngram/partition/count_sums.hpp"
#include "ngram/partition/partition_counts.hpp"
#include "ngram/partition/partition_estimates.hpp"
#include "ngram/partition/partition_plan.hpp"
#include "ngram/partition/windows.hpp"
#include "ngram/partition/word_records.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

// Views of objects with the buffer protocol (bytes, memory views, mapped files), which stay alive with this
// object.
class BufferViews {
  public:
    explicit BufferViews(const nb::object& buffers) {
        for (const nb::handle buffer : buffers) add(buffer);
    }
    BufferViews(const BufferViews&) = delete;
    BufferViews& operator=(const BufferViews&) = delete;
    ~BufferViews() {
        for (Py_buffer& buffer : buffers_) PyBuffer_Release(&buffer);
    }
    static BufferViews of(const nb::object& buffer) { return BufferViews(nb::make_tuple(buffer)); }

    const std::vector<std::string_view>& views() const { return views_; }
    std::string_view single() const { return views_.front(); }

  private:
    void add(nb::handle object) {
        Py_buffer buffer;
        if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_SIMPLE) != 0) nb::raise_python_error();
        buffers_.push_back(buffer);
        views_.emplace_back(static_cast<const char*>(buffer.buf), static_cast<std::size_t>(buffer.len));
    }

    std::vector<Py_buffer> buffers_;
    std::vector<std::string_view> views_;
};

nb::bytes to_bytes(const std::string& value) { return nb::bytes(value.data(), value.size()); }

nb::list to_records(const std::vector<std::pair<std::uint32_t, std::string>>& records) {
    nb::list result;
    for (const auto& [key, bytes] : records) result.append(nb::make_tuple(key, to_bytes(bytes)));
    return result;
}

PartitionPlan balance(const AnyArray& sample, std::int64_t order, std::int64_t vocabulary, std::int64_t bos,
                      std::int64_t eos, bool is_stream, std::int64_t partitions, std::int64_t limit,
                      std::int64_t ranges) {
    const auto ids = checked_span<std::int32_t>(sample, "sample", "int32");
    const ModelMetadata metadata = model_metadata(vocabulary, bos, eos, -1, false, is_stream, true, 0.0);
    const WindowShape shape{checked_number(order, 1, kMaxQueryOrder, "order"), metadata.vocabulary,
                            metadata.begin, metadata.end, is_stream};
    if (limit < 0) throw ArgumentError("limit is " + std::to_string(limit) + "; choose 0 or more");
    const std::uint32_t parts = checked_number(partitions, 1, 1 << 24, "partitions");
    const std::uint32_t range_count = checked_number(ranges, 1, 1 << 24, "ranges");
    const nb::gil_scoped_release free;
    return PartitionPlan::balance(shape, ids, parts, static_cast<std::uint64_t>(limit), range_count);
}

// A plan and the windows collected for it.
struct PyWindows {
    explicit PyWindows(const PartitionPlan& from) : plan(from), encoder(plan) {}

    PartitionPlan plan;
    WindowEncoder encoder;
};

nb::list sums(const PartitionPlan& plan, const nb::object& records, std::int64_t parts, std::int64_t limit) {
    const BufferViews buffers(records);
    const std::uint32_t count = checked_number(parts, 1, 1 << 24, "parts");
    const std::uint32_t most = checked_number(limit, 1, static_cast<std::int64_t>(kMaxWindows), "limit");
    std::vector<std::pair<std::uint32_t, std::string>> result;
    {
        const nb::gil_scoped_release free;
        result = PartitionCounts(plan, buffers.views(), most).sums(count);
    }
    return to_records(result);
}

nb::bytes unigram_sums(const AnyArray& counts) {
    const auto values = checked_span<std::int64_t>(counts, "counts", "int64");
    CountSums sums(1);
    for (std::size_t word = 0; word < values.size(); ++word)
        if (values[word] > 0)
            sums.add_unigram(static_cast<std::uint32_t>(word),
                             static_cast<std::uint32_t>(std::min<std::int64_t>(values[word], 0xFFFFFFFF)));
    return to_bytes(sums.bytes());
}

CountSums merged(std::uint32_t order, const std::vector<std::string_view>& records) {
    CountSums sums(order);
    for (const std::string_view record : records) sums.add(record);
    sums.merge();
    return sums;
}

nb::bytes merge(std::int64_t order, const nb::object& records) {
    const BufferViews buffers(records);
    const std::uint32_t n = checked_number(order, 1, kMaxQueryOrder, "order");
    std::string bytes;
    {
        const nb::gil_scoped_release free;
        bytes = merged(n, buffers.views()).bytes();
    }
    return to_bytes(bytes);
}

nb::tuple estimate_globally(const PartitionPlan& plan, const nb::object& records, std::int64_t unk,
                            bool is_closed, const std::vector<std::int64_t>& cut_offs) {
    const BufferViews buffers(records);
    EstimateOptions options;
    const std::int64_t vocabulary = plan.shape().vocabulary;
    if (is_closed && unk != -1) options.unknown = checked_number(unk, 0, vocabulary - 1, "unk");
    for (const std::int64_t cut : cut_offs)
        options.cut_offs.push_back(checked_number(cut, 0, 0xFFFFFFFF, "a cut-off"));
    std::string bytes;
    nb::list reasons;
    std::vector<Discounts> discounts;
    {
        const nb::gil_scoped_release free;
        const GlobalEstimates global(plan, merged(plan.shape().order, buffers.views()), options);
        bytes = global.bytes();
        discounts = global.discounts();
    }
    for (const Discounts& D : discounts) reasons.append(nb::str(fallback_reason(D).c_str()));
    return nb::make_tuple(to_bytes(bytes), reasons);
}

nb::list estimates(const PartitionPlan& plan, const nb::object& global, std::int64_t partition,
                   const nb::object& records, std::int64_t limit) {
    const BufferViews global_view = BufferViews::of(global), buffers(records);
    const std::uint32_t number = checked_number(partition, 0, plan.partitions() - 1, "partition");
    const std::uint32_t most = checked_number(limit, 1, static_cast<std::int64_t>(kMaxWindows), "limit");
    std::vector<std::pair<std::uint32_t, std::string>> result;
    {
        const nb::gil_scoped_release free;
        result = estimate_partition(PartitionCounts(plan, buffers.views(), most),
                                    GlobalEstimates(global_view.single()), number);
    }
    return to_records(result);
}

nb::bytes assemble(const PartitionPlan& plan, const nb::object& global, std::int64_t range,
                   const nb::object& records) {
    const BufferViews global_view = BufferViews::of(global), buffers(records);
    const auto ranges = static_cast<std::int64_t>(plan.ranges().size()) - 1;
    const std::uint32_t number = checked_number(range, 0, ranges - 1, "range");
    std::string bytes;
    {
        const nb::gil_scoped_release free;
        bytes = assemble_range(plan, GlobalEstimates(global_view.single()), number, buffers.views());
    }
    return to_bytes(bytes);
}

void write(const nb::object& tables, const PartitionPlan& plan, std::int64_t unk, bool is_closed,
           bool holds_suffixes, const nb::object& names, const std::string& layout, std::int64_t bits,
           std::int64_t threads, const std::filesystem::path& out_path) {
    const BufferViews buffers(tables);
    const WindowShape& shape = plan.shape();
    ModelMetadata metadata =
        model_metadata(shape.vocabulary, shape.begin, shape.end, unk, is_closed, shape.is_stream, true, 0.0);
    metadata.holds_suffixes = holds_suffixes;
    const LayoutChoice choice = layout_choice(layout, bits);
    const std::shared_ptr<const WordList> words = word_list(names);
    if (words && words->size() != metadata.vocabulary)
        throw ArgumentError("there are " + std::to_string(words->size()) + " names for " +
                            std::to_string(metadata.vocabulary) + " words");
    const std::size_t workers = checked_threads(threads);
    const std::string out = out_path.string();
    const nb::gil_scoped_release free;
    const RangeRows rows(shape.order, buffers.views());
    const FileMetadata about = metadata_of(rows, metadata, choice);
    write_model(out, about, model_sections(rows, about, words, workers), workers);
}

void add_counts(BlockCounter& counter, const nb::dict& counts) {
    for (const auto& [word, count] : counts) {
        Py_ssize_t size = 0;
        const char* const letters = PyUnicode_AsUTF8AndSize(word.ptr(), &size);
        if (!letters) throw nb::python_error();
        counter.add_count(std::string_view(letters, static_cast<std::size_t>(size)),
                          nb::cast<std::uint64_t>(count));
    }
}

WordCounts added_counts(const nb::object& records) {
    const BufferViews buffers(records);
    const nb::gil_scoped_release free;
    return add_word_counts(buffers.views());
}

nb::dict word_counts(const nb::object& records) {
    const WordCounts counts = added_counts(records);
    nb::dict result;
    for (const std::uint32_t number : counts.order) {
        const std::string_view word = counts.words.word(number);
        PyObject* const text =
            PyUnicode_DecodeUTF8(word.data(), static_cast<Py_ssize_t>(word.size()), "strict");
        if (!text) throw nb::python_error();
        result[nb::steal(text)] = nb::int_(counts.counts[number]);
    }
    return result;
}

void bind_word_records(nb::module_& module) {
    nb::class_<BlockCounter>(module, "BlockCounter", "Word counts, sizes and sketch of a text in blocks.")
        .def(
            "__init__",
            [](BlockCounter* self, const std::optional<std::string>& placeholder, std::size_t shortest,
               std::size_t size, bool counts_words) {
                new (self) BlockCounter(Splitting::of(placeholder), {shortest, size}, counts_words);
            },
            nb::arg("placeholder").none(), nb::arg("shortest"), nb::arg("size"),
            nb::arg("counts_words") = true)
        .def(
            "add",
            [](BlockCounter& self, const nb::object& lines, bool ends_line) {
                const BufferViews buffer = BufferViews::of(lines);
                const nb::gil_scoped_release free;
                self.add(buffer.single(), ends_line);
            },
            nb::arg("lines"), nb::arg("ends_line") = true,
            "Add UTF-8 lines that end with LF; without `ends_line`, the beginning of a line, with an LF that "
            "is not part of it.")
        .def("add_counts", &add_counts, nb::arg("counts"), "Add counts of words.")
        .def_prop_ro("words", [](const BlockCounter& self) { return self.sizes().words; })
        .def_prop_ro("lines", [](const BlockCounter& self) { return self.sizes().lines; })
        .def_prop_ro("characters", [](const BlockCounter& self) { return self.sizes().characters; })
        .def_prop_ro("bytes", [](const BlockCounter& self) { return self.sizes().bytes; })
        .def("sketch",
             [](const BlockCounter& self) {
                 std::vector<std::uint64_t> hashes = self.sketch();
                 const std::size_t length = hashes.size();
                 return to_numpy_array(std::move(hashes), {length});
             })
        .def(
            "records",
            [](const BlockCounter& self, std::int64_t parts) {
                return to_records(self.records(checked_number(parts, 1, 1 << 24, "parts")));
            },
            nb::arg("parts"), "Return the counts as records of (hash of the word modulo `parts`, bytes).");
    module.def(
        "has_long_line",
        [](const nb::object& lines) { return has_long_line(BufferViews::of(lines).single()); },
        nb::arg("lines"), "Whether a line has more than 65,536 characters.");
    module.def(
        "add_word_counts",
        [](const nb::object& records) { return to_bytes(word_count_record(added_counts(records))); },
        nb::arg("records"), "Add up records of word counts.");
    module.def("word_counts", &word_counts, nb::arg("records"),
               "Add up records of word counts: count by word, by descending count, ties by code points.");
    module.def(
        "word_encoding_to_bytes",
        [](const WordEncoding& encoding) { return to_bytes(encoding_record(encoding)); }, nb::arg("encoding"),
        "Return a WordEncoding as bytes.");
    module.def(
        "word_encoding_from_bytes",
        [](const nb::object& bytes) { return read_encoding(BufferViews::of(bytes).single()); },
        nb::arg("bytes"), "Return the WordEncoding of these bytes.");
}

}  // namespace

void bind_ngram_partition(nb::module_& module) {
    bind_word_records(module);
    nb::class_<PartitionPlan>(module, "PartitionPlan",
                              "Assignment of n-grams to partitions by context, and to ranges by first word.")
        .def_static("balance", &balance, nb::arg("sample"), nb::arg("order"), nb::arg("vocabulary_size"),
                    nb::arg("bos"), nb::arg("eos"), nb::arg("is_stream"), nb::arg("partitions"),
                    nb::arg("limit") = 0, nb::arg("ranges") = 1,
                    "Balance partitions on a sample of ids with `eos` after each line. A context with more "
                    "than `limit` different windows of the sample is split; 0: half of a partition's share.")
        .def(
            "__init__",
            [](PartitionPlan* self, const nb::object& bytes) {
                new (self) PartitionPlan(BufferViews::of(bytes).single());
            },
            nb::arg("bytes"))
        .def("to_bytes", [](const PartitionPlan& plan) { return to_bytes(plan.bytes()); })
        .def_prop_ro("partitions", &PartitionPlan::partitions)
        .def_prop_ro("ranges", [](const PartitionPlan& plan) { return plan.ranges().size() - 1; })
        .def_prop_ro("split_contexts", &PartitionPlan::split_contexts);
    nb::class_<PyWindows>(module, "WindowEncoder", "Windows of a text, as records of (partition, bytes).")
        .def(nb::init<const PartitionPlan&>(), nb::arg("plan"))
        .def(
            "start",
            [](PyWindows& self, const AnyArray& ids) {
                self.encoder.start(checked_span<std::int32_t>(ids, "ids", "int32"));
            },
            nb::arg("ids"), "Set the words before the text (stream context).")
        .def(
            "add",
            [](PyWindows& self, const AnyArray& ids) {
                const auto span = checked_span<std::int32_t>(ids, "ids", "int32");
                const nb::gil_scoped_release free;
                self.encoder.add(span);
            },
            nb::arg("ids"), "Add ids with `eos` after each line.")
        .def(
            "add_text",
            [](PyWindows& self, const nb::object& lines, const WordEncoding& encoding) {
                const BufferViews buffers = BufferViews::of(lines);
                const nb::gil_scoped_release free;
                self.encoder.add_text(buffers.single(), encoding);
            },
            nb::arg("lines"), nb::arg("encoding"), "Add UTF-8 lines that end with LF.")
        .def_prop_ro("windows", [](const PyWindows& self) { return self.encoder.windows(); })
        .def_prop_ro("tokens", [](const PyWindows& self) { return self.encoder.tokens(); })
        .def_prop_ro("unknown", [](const PyWindows& self) { return self.encoder.unknown(); })
        .def(
            "take",
            [](PyWindows& self) {
                std::vector<WindowEncoder::Record> records;
                {
                    const nb::gil_scoped_release free;
                    records = self.encoder.take();
                }
                return to_records(records);
            },
            "Return the records of the windows added since the last call.");
    const auto most = static_cast<std::int64_t>(kMaxWindows);
    module.def(
        "partition_sums", &sums, nb::arg("plan"), nb::arg("records"), nb::arg("parts") = 1,
        nb::arg("limit") = most,
        "Count the n-grams of a partition, from its windows in any order; return what other partitions "
        "need to know as `parts` records of (part, bytes).");
    module.def("unigram_sums", &unigram_sums, nb::arg("counts"),
               "Sums of a model of order 1, from the counts of the words.");
    module.def("merge_sums", &merge, nb::arg("order"), nb::arg("records"), "Add up records of sums.");
    module.def(
        "global_estimates", &estimate_globally, nb::arg("plan"), nb::arg("records"), nb::arg("unk") = -1,
        nb::arg("is_closed") = false, nb::arg("cut_offs") = std::vector<std::int64_t>(),
        "Estimate from the sums of all partitions what they share, as bytes, with the reason for default "
        "discounts of each order.");
    module.def("partition_estimates", &estimates, nb::arg("plan"), nb::arg("global_estimates"),
               nb::arg("partition"), nb::arg("records"), nb::arg("limit") = most,
               "Estimate the n-grams of a partition, from its windows; return records of (range, bytes).");
    module.def("assemble_range", &assemble, nb::arg("plan"), nb::arg("global_estimates"), nb::arg("range"),
               nb::arg("records"), "Tables of the n-grams of a range, from the estimates of all partitions.");
    module.def("write_ranges", &write, nb::arg("tables"), nb::arg("plan"), nb::arg("unk") = -1,
               nb::arg("is_closed") = false, nb::arg("holds_suffixes") = true,
               nb::arg("names").none() = nb::none(), nb::arg("layout") = "fast", nb::arg("bits") = 0,
               nb::arg("threads") = 1, nb::arg("out"),
               "Write the model file `out` from the tables of all ranges in order.");
}

}  // namespace chainrule
