// Python bindings of word counts, ids and line sketches of a text. The functions return None if a line is too
// long, and the Python implementation reads the text.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/bindings.hpp"
#include "text/encode.hpp"
#include "text/input/text_reader.hpp"
#include "text/line_sketch.hpp"
#include "text/punctuation.hpp"
#include "text/utf8.hpp"
#include "text/words.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

constexpr std::int64_t kMaxThreads = 65536;

std::size_t workers(std::int64_t threads) {
    if (threads < 1 || threads > kMaxThreads)
        throw ArgumentError("threads is " + std::to_string(threads) + "; choose a number from 1 to 65536");
    return static_cast<std::size_t>(threads);
}

nb::object text_of(std::string_view word) {
    PyObject* const result =
        PyUnicode_DecodeUTF8(word.data(), static_cast<Py_ssize_t>(word.size()), "strict");
    if (!result) throw nb::python_error();
    return nb::steal(result);
}

nb::dict counts_of(const WordCounts& words) {
    nb::dict counts;
    for (const std::uint32_t number : words.order)
        counts[text_of(words.words.word(number))] = nb::int_(words.counts[number]);
    return counts;
}

nb::object count(TextReader& text, std::int64_t threads, const std::optional<std::string>& placeholder) {
    const std::size_t n = workers(threads);
    const Splitting splitting = Splitting::of(placeholder);
    std::optional<WordCounts> word_counts;
    {
        const nb::gil_scoped_release free;
        word_counts = count_words(text, splitting, n);
    }
    if (!word_counts) return nb::none();
    return counts_of(*word_counts);
}

nb::dict count_block(const nb::bytes& lines, const std::optional<std::string>& placeholder) {
    const Splitting splitting = Splitting::of(placeholder);
    const std::string_view text(lines.c_str(), lines.size());
    WordCounts counts;
    {
        const nb::gil_scoped_release free;
        std::string buffer;
        std::vector<WordCounter> counters(1);
        const auto add = [&](const Word& word) { counters[0].add(word, 1); };
        scan_words(splitting.apply(text, buffer), add, [] {});
        counts = merge_counters(counters);
    }
    return counts_of(counts);
}

std::int32_t id_of(nb::handle id) {
    const auto value = nb::cast<std::int64_t>(id);
    if (value < 0 || value > std::numeric_limits<std::int32_t>::max())
        throw ArgumentError("the id " + std::to_string(value) + " is out of range");
    return static_cast<std::int32_t>(value);
}

WordEncoding encoding_of(const nb::dict& known, nb::handle unknown, nb::handle end,
                         const std::optional<std::string>& placeholder) {
    std::vector<std::pair<std::int32_t, std::string_view>> words;
    words.reserve(known.size());
    for (const auto& [name, id] : known) {
        Py_ssize_t size = 0;
        const char* const letters = PyUnicode_AsUTF8AndSize(name.ptr(), &size);
        if (!letters) throw nb::python_error();
        words.emplace_back(id_of(id), std::string_view(letters, static_cast<std::size_t>(size)));
    }
    // Ids are in order of decreasing frequency: frequent words come first in the table and are found at once.
    std::sort(words.begin(), words.end());
    WordEncoding encoding{{}, {}, id_of(unknown), id_of(end), Splitting::of(placeholder)};
    for (const auto& [id, letters] : words) {
        const std::uint32_t number = encoding.words.add(Word::of(letters));
        if (number == encoding.ids.size()) encoding.ids.push_back(id);
    }
    return encoding;
}

nb::list spellings_of(const EncodedWords& text) {
    std::vector<std::vector<nb::object>> tables;
    for (const WordTable& table : text.spelled) {
        std::vector<nb::object>& words = tables.emplace_back();
        for (std::size_t i = 0; i < table.size(); ++i) words.push_back(text_of(table.word(i)));
    }
    nb::list result;
    for (const auto& [table, number] : text.spellings) result.append(tables[table][number]);
    return result;
}

nb::dict summary_of(const EncodedWords& encoded) {
    nb::dict result;
    result["words"] = encoded.sizes.words;
    result["lines"] = encoded.sizes.lines;
    result["characters"] = encoded.sizes.characters;
    result["bytes"] = encoded.sizes.bytes;
    result["spellings"] = spellings_of(encoded);
    std::vector<std::uint64_t> hashes = encoded.sketch.hashes;
    const std::size_t length = hashes.size();
    result["sketch"] = to_numpy_array(std::move(hashes), {length});
    return result;
}

// Passes lines to a Python function as memory views that are valid during the call; `update` may be None.
OnLines call_with_views(nb::handle update) {
    if (update.is_none()) return {};
    return [update](const std::string& lines) {
        const nb::gil_scoped_acquire held;
        // PyMemoryView_FromMemory takes a non-const pointer; the view is read-only.
        PyObject* const view = PyMemoryView_FromMemory(const_cast<char*>(lines.data()),
                                                       static_cast<Py_ssize_t>(lines.size()), PyBUF_READ);
        if (!view) throw nb::python_error();
        update(nb::steal(view));
    };
}

nb::object encode_to_file(TextReader& text, const WordEncoding& encoding, std::int64_t threads,
                          const nb::bytes& ids_file, std::size_t shortest, std::size_t size,
                          nb::handle update) {
    const std::size_t n = workers(threads);
    const std::string file(ids_file.c_str(), ids_file.size());
    const OnLines on_lines = call_with_views(update);
    std::optional<EncodedWords> encoded;
    {
        const nb::gil_scoped_release free;
        encoded = encode_words(text, encoding, file, {shortest, size}, n, on_lines);
    }
    if (!encoded) return nb::none();
    return summary_of(*encoded);
}

nb::object encode(TextReader& text, const WordEncoding& encoding, std::int64_t threads, std::size_t shortest,
                  std::size_t size, nb::handle update) {
    const std::size_t n = workers(threads);
    const OnLines on_lines = call_with_views(update);
    std::optional<EncodedText> encoded;
    {
        const nb::gil_scoped_release free;
        encoded = encode_text(text, encoding, {shortest, size}, n, on_lines);
    }
    if (!encoded) return nb::none();
    nb::dict result = summary_of(*encoded);
    const std::size_t tokens = encoded->ids.size();
    result["ids"] = to_numpy_array(std::move(encoded->ids), {tokens});
    return result;
}

nb::dict encode_block(const nb::bytes& lines, const WordEncoding& encoding) {
    const std::string_view text(lines.c_str(), lines.size());
    if (!text.empty() && text.back() != '\n') throw ArgumentError("the last line does not end with LF");
    EncodedText encoded;
    {
        const nb::gil_scoped_release free;
        encoded = encode_lines(text, encoding);
    }
    nb::dict result = summary_of(encoded);
    const std::size_t tokens = encoded.ids.size();
    result["ids"] = to_numpy_array(std::move(encoded.ids), {tokens});
    return result;
}

nb::object scan(TextReader& text, std::int64_t threads, const std::optional<std::string>& placeholder,
                std::size_t shortest, std::size_t size, nb::handle update) {
    const std::size_t n = workers(threads);
    const Splitting splitting = Splitting::of(placeholder);
    const OnLines on_lines = call_with_views(update);
    std::optional<TextScan> result;
    {
        const nb::gil_scoped_release free;
        result = scan_text(text, splitting, {shortest, size}, n, on_lines);
    }
    if (!result) return nb::none();
    return nb::cast(std::move(*result));
}

// Ids of the scanned text, and the spellings of its unknown words in text order.
nb::tuple encode_scan(TextScan& scan, const nb::dict& known, nb::handle unk, nb::handle eos,
                      std::int64_t threads) {
    const std::size_t n = workers(threads);
    const std::int32_t unknown = id_of(unk), end = id_of(eos);
    const WordTable& words = scan.words().words;
    std::vector<std::int32_t> ids(words.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
        PyObject* const id = PyDict_GetItemWithError(known.ptr(), text_of(words.word(i)).ptr());
        if (!id && PyErr_Occurred()) throw nb::python_error();
        ids[i] = id ? id_of(id) : unknown;
    }
    ScannedIds result;
    {
        const nb::gil_scoped_release free;
        result = scan.encode(ids, unknown, end, n);
    }
    std::unordered_map<std::uint32_t, nb::object> spelled;
    nb::list spellings;
    for (const std::uint32_t number : result.unknown) {
        nb::object& spelling = spelled[number];
        if (!spelling.is_valid()) spelling = text_of(words.word(number));
        spellings.append(spelling);
    }
    const std::size_t tokens = result.ids.size();
    return nb::make_tuple(to_numpy_array(std::move(result.ids), {tokens}), spellings);
}

// Tokens of a line with joiners, and their begin and end in characters.
nb::list split_spans(const std::string& line, const std::string& placeholder) {
    std::vector<SplitToken> tokens;
    split_tokens(line, placeholder, tokens);
    nb::list result;
    std::size_t at = 0, characters = 0;
    const std::string_view text(line);
    for (const SplitToken& token : tokens) {
        characters += count_characters(text.substr(at, token.begin - at));
        const std::string_view letters = text.substr(token.begin, token.end - token.begin);
        std::string name(token.joins_left ? kJoiner : "");
        name += letters;
        if (token.joins_right) name += kJoiner;
        const std::size_t length = count_characters(letters);
        result.append(nb::make_tuple(name, characters, characters + length));
        characters += length;
        at = token.end;
    }
    return result;
}

std::string split_text(const std::string& line, const std::string& placeholder) {
    std::string out;
    append_split(line, placeholder, out);
    return out;
}

nb::object sketch(TextReader& text, std::size_t shortest, std::size_t size, std::int64_t threads,
                  nb::handle update) {
    const std::size_t n = workers(threads);
    const OnLines on_lines = call_with_views(update);
    std::optional<Sketch> line_sketch;
    {
        const nb::gil_scoped_release free;
        line_sketch = sketch_lines(text, {shortest, size}, n, on_lines);
    }
    if (!line_sketch) return nb::none();
    const std::size_t length = line_sketch->hashes.size();
    return nb::make_tuple(to_numpy_array(std::move(line_sketch->hashes), {length}), line_sketch->lines);
}

}  // namespace

void bind_text(nb::module_& module) {
    module.def("split_punctuation", &split_text, nb::arg("line"), nb::arg("placeholder"),
               "Split a line into tokens separated by one space, with a joiner between tokens not separated "
               "in the line; "
               "`placeholder` is one token.");
    module.def("split_punctuation_spans", &split_spans, nb::arg("line"), nb::arg("placeholder"),
               "The same as a list of (token, start, end), in characters of the line.");
    module.def(
        "split_without_joiners",
        [](const std::string& text) {
            const std::string words = split_without_joiners(text);
            return nb::bytes(words.data(), words.size());
        },
        nb::arg("text"), "Split several lines into words separated by one space, without joiners (UTF-8).");
    module.def("join_punctuation", &join_tokens, nb::arg("tokens"),
               "Restore the text from tokens separated by one space: the inverse of `split_punctuation`.");
    module.def(
        "joins", [](const std::string& token) { return std::pair(joins_left(token), joins_right(token)); },
        nb::arg("token"), "Whether a token is joined to the previous token, and to the next.");
    module.def(
        "count_plain_words", &count, nb::arg("text"), nb::arg("threads"), nb::arg("placeholder") = nb::none(),
        "Count the words of a text, by descending count, ties by code points; None if a line, or a word of a "
        "vocabulary, is too long.");
    module.def("count_words_of_lines", &count_block, nb::arg("lines"), nb::arg("placeholder") = nb::none(),
               "Count the words of lines in memory (UTF-8), by descending count, ties by code points.");
    nb::class_<WordEncoding>(module, "WordEncoding", "Mapping from words to ids, for the functions below.")
        .def(
            "__init__",
            [](WordEncoding* self, const nb::dict& known, nb::handle unk, nb::handle eos,
               const std::optional<std::string>& placeholder) {
                new (self) WordEncoding(encoding_of(known, unk, eos, placeholder));
            },
            nb::arg("known"), nb::arg("unk"), nb::arg("eos"), nb::arg("placeholder") = nb::none());
    module.def(
        "encode_plain_text", &encode, nb::arg("text"), nb::arg("encoding"), nb::arg("threads"),
        nb::arg("shortest") = 0, nb::arg("size") = 0, nb::arg("update") = nb::none(),
        "Encode the words of a text in one pass with `eos` after each line: the fields of EncodedText, and a "
        "sketch of at most `size` lines; `update` receives the text in order, as hashlib's does. None if "
        "a line is too long.");
    module.def("encode_plain_words", &encode_to_file, nb::arg("text"), nb::arg("encoding"),
               nb::arg("threads"), nb::arg("ids_file"), nb::arg("shortest") = 0, nb::arg("size") = 0,
               nb::arg("update") = nb::none(),
               "The same in bounded memory: the ids are written to `ids_file` as int32.");
    module.def(
        "encode_lines", &encode_block, nb::arg("lines"), nb::arg("encoding"),
        "Encode lines in memory (UTF-8, LF after each) as `encode_plain_text` does, without a sketch.");
    nb::class_<TextScan>(module, "TextScan", "The words of a text in order, and its counts, from one pass.")
        .def_prop_ro(
            "counts", [](const TextScan& scan) { return counts_of(scan.words()); },
            "Count by word, by descending count, ties by code points.")
        .def_prop_ro("words", [](const TextScan& scan) { return scan.sizes().words; })
        .def_prop_ro("lines", [](const TextScan& scan) { return scan.sizes().lines; })
        .def_prop_ro("characters", [](const TextScan& scan) { return scan.sizes().characters; })
        .def_prop_ro("bytes", [](const TextScan& scan) { return scan.sizes().bytes; })
        .def_prop_ro(
            "sketch",
            [](const TextScan& scan) {
                std::vector<std::uint64_t> hashes = scan.sketch().hashes;
                const std::size_t length = hashes.size();
                return to_numpy_array(std::move(hashes), {length});
            },
            nb::rv_policy::automatic)
        .def("encode", &encode_scan, nb::arg("known"), nb::arg("unk"), nb::arg("eos"), nb::arg("threads"),
             "Return the ids with `eos` after each line, and the spellings of unknown words in text order; "
             "may be called once.");
    module.def(
        "scan_plain_text", &scan, nb::arg("text"), nb::arg("threads"), nb::arg("placeholder") = nb::none(),
        nb::arg("shortest") = 0, nb::arg("size") = 0, nb::arg("update") = nb::none(),
        "Read a text once: a TextScan with a sketch of at most `size` lines; `update` receives the text in "
        "order, as hashlib's does. None if a line, or a word of a vocabulary, is too long.");
    module.def(
        "sketch_plain_lines", &sketch, nb::arg("text"), nb::arg("shortest"), nb::arg("size"),
        nb::arg("threads"), nb::arg("update") = nb::none(),
        "The smallest hashes of lines of `shortest` characters or more, and the number of lines; `update` "
        "receives the text in order. None if a line is too long.");
}

}  // namespace chainrule
