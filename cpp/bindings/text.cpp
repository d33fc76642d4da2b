// Python bindings of word counts, ids and line sketches of a text. The functions return None if a line is too
// long, and the Python implementation reads the text.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
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

#include "base/input_file.hpp"
#include "bindings/bindings.hpp"
#include "text/encode.hpp"
#include "text/input/text_reader.hpp"
#include "text/line_sketch.hpp"
#include "text/punctuation.hpp"
#include "text/utf8.hpp"
#include "text/vocabulary.hpp"
#include "text/word_counting.hpp"
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

// The counted words of `counts`, which is finished.
CountedWords counted_words(const std::shared_ptr<WordCounting>& counts, std::vector<std::string> excluded) {
    counts->finish();
    return CountedWords([words = counts.get()](const CountedWords::Visit& visit) { words->for_each(visit); },
                        std::move(excluded));
}

nb::object text_of(std::string_view word) {
    PyObject* const result =
        PyUnicode_DecodeUTF8(word.data(), static_cast<Py_ssize_t>(word.size()), "strict");
    if (!result) throw nb::python_error();
    return nb::steal(result);
}

nb::object count(TextReader& text, std::int64_t threads, const std::optional<std::string>& placeholder,
                 const std::vector<std::string>& excluded, std::uint64_t memory, const std::string& folder) {
    const std::size_t n = workers(threads);
    const Splitting splitting = Splitting::of(placeholder);
    const auto counts = std::make_shared<WordCounting>(n, CountingLimit{memory, folder});
    std::optional<CountedWords> words;
    {
        const nb::gil_scoped_release free;
        if (count_words(text, splitting, n, *counts)) words = counted_words(counts, excluded);
    }
    if (!words) return nb::none();
    return nb::cast(PyCountedWords{counts, std::move(*words)});
}

std::int32_t id_of(nb::handle id) {
    const auto value = nb::cast<std::int64_t>(id);
    if (value < 0 || value > std::numeric_limits<std::int32_t>::max())
        throw ArgumentError("the id " + std::to_string(value) + " is out of range");
    return static_cast<std::int32_t>(value);
}

// A word of any Python string; nothing for lone surrogates, which no text contains.
std::optional<std::string_view> letters_of(nb::handle word) {
    Py_ssize_t size = 0;
    const char* const letters = PyUnicode_AsUTF8AndSize(word.ptr(), &size);
    if (letters) return std::string_view(letters, static_cast<std::size_t>(size));
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw nb::python_error();
    PyErr_Clear();
    return {};
}

PyVocabulary vocabulary_of(const nb::object& names, std::size_t controls) {
    auto words = std::make_shared<WordList>();
    for (const nb::handle name : names) {
        Py_ssize_t size = 0;
        const char* const letters = PyUnicode_AsUTF8AndSize(name.ptr(), &size);
        if (!letters) throw nb::python_error();
        words->add({letters, static_cast<std::size_t>(size)});
    }
    return {std::make_shared<const WordVocabulary>(std::move(words), controls)};
}

nb::object name_at(const PyVocabulary& self, std::int64_t id) {
    if (id < 0 || static_cast<std::uint64_t>(id) >= self.vocabulary->size())
        throw nb::index_error(("there is no word with the id " + std::to_string(id)).c_str());
    return text_of(self.vocabulary->name(static_cast<std::size_t>(id)));
}

nb::object vocabulary_from_json(const nb::bytes& content, std::size_t from, std::size_t to,
                                const std::vector<std::string>& controls) {
    if (from > to || to > content.size()) throw ArgumentError("the entries lie outside the file");
    const std::string_view entries(content.c_str() + from, to - from);
    std::optional<WordVocabulary> vocabulary;
    {
        const nb::gil_scoped_release free;
        vocabulary = read_json_entries(entries, controls);
    }
    if (!vocabulary) return nb::none();
    return nb::cast(PyVocabulary{std::make_shared<const WordVocabulary>(std::move(*vocabulary))});
}

nb::bytes json_entries(const PyVocabulary& self, std::size_t from, std::size_t to) {
    std::string entries;
    append_json_entries(*self.vocabulary, from, std::min(to, self.vocabulary->words()), entries);
    return nb::bytes(entries.data(), entries.size());
}

PyVocabulary select(const PyCountedWords& self, std::uint64_t most, const std::vector<std::string>& first,
                    const std::vector<std::string>& last) {
    const nb::gil_scoped_release free;
    auto words = std::make_shared<WordList>(self.words.select(most, first, last));
    return {std::make_shared<const WordVocabulary>(std::move(words), last.size())};
}

nb::dict counts_of(const PyCountedWords& self) {
    const auto [words, counts] = self.words.sorted();
    nb::dict result;
    for (std::size_t i = 0; i < counts.size(); ++i) result[text_of(words.name(i))] = nb::int_(counts[i]);
    return result;
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
    std::vector<std::uint64_t> hashes = encoded.sketch.hashes;
    const std::size_t length = hashes.size();
    result["sketch"] = to_numpy_array(std::move(hashes), {length});
    return result;
}

// Number of occurrences of each id below `size` in a file of int32.
nb::ndarray<nb::numpy, std::int64_t> count_ids(const nb::bytes& ids_file, std::size_t size) {
    const std::string file(ids_file.c_str(), ids_file.size());
    std::vector<std::int64_t> counts(size);
    {
        const nb::gil_scoped_release free;
        const InputFile ids(file);
        std::vector<std::int32_t> block(std::size_t{1} << 18);
        const std::uint64_t all = ids.size() / 4;
        for (std::uint64_t from = 0; from < all; from += block.size()) {
            const std::size_t read = std::min<std::uint64_t>(block.size(), all - from);
            ids.read(from * 4, reinterpret_cast<char*>(block.data()), read * 4);
            for (std::size_t i = 0; i < read; ++i) {
                if (block[i] < 0 || static_cast<std::size_t>(block[i]) >= size)
                    throw ArgumentError("the id " + std::to_string(block[i]) + " in " + file +
                                        " is out of range");
                ++counts[static_cast<std::size_t>(block[i])];
            }
        }
    }
    return to_numpy_array(std::move(counts), {size});
}

nb::dict count_block(const nb::bytes& lines, const std::optional<std::string>& placeholder) {
    const Splitting splitting = Splitting::of(placeholder);
    const std::string_view text(lines.c_str(), lines.size());
    const auto counts = std::make_shared<WordCounting>(1, CountingLimit{});
    std::optional<CountedWords> words;
    {
        const nb::gil_scoped_release free;
        std::string buffer;
        scan_words(splitting.apply(text, buffer), [&](const Word& word) { counts->add(0, word); }, [] {});
        words = counted_words(counts, {});
    }
    return counts_of(PyCountedWords{counts, std::move(*words)});
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
                          nb::handle update, const std::vector<std::string>& excluded, std::uint64_t memory,
                          const std::string& folder) {
    const std::size_t n = workers(threads);
    const std::string file(ids_file.c_str(), ids_file.size());
    const OnLines on_lines = call_with_views(update);
    const auto spelled = std::make_shared<WordCounting>(n, CountingLimit{memory, folder});
    std::optional<EncodedWords> encoded;
    std::optional<CountedWords> words;
    {
        const nb::gil_scoped_release free;
        encoded = encode_words(text, encoding, file, {shortest, size}, n, *spelled, on_lines);
        if (encoded) words = counted_words(spelled, excluded);
    }
    if (!encoded) return nb::none();
    nb::dict result = summary_of(*encoded);
    result["spelled"] = nb::cast(PyCountedWords{spelled, std::move(*words)});
    return result;
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
    result["spellings"] = spellings_of(*encoded);
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
    result["spellings"] = spellings_of(encoded);
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
    return nb::cast(std::make_shared<TextScan>(std::move(*result)));
}

// Ids of the scanned text, and the spellings of its unknown words in text order.
nb::tuple encode_scan(TextScan& scan, const WordEncoding& encoding, std::int64_t threads) {
    const std::size_t n = workers(threads);
    const std::int32_t unknown = encoding.unknown, end = encoding.end;
    const WordTable& words = scan.words().words;
    ScannedIds result;
    {
        const nb::gil_scoped_release free;
        std::vector<std::int32_t> ids(words.size());
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = encoding.find(Word::of(words.word(i)));
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

// Counts words that Python passes.
class PyVocabularyCounter {
  public:
    PyVocabularyCounter(std::uint64_t memory, const std::string& folder)
        : counts_(std::make_shared<WordCounting>(1, CountingLimit{memory, folder})) {}

    void add(std::string_view words) {
        if (is_finished_) throw ArgumentError("the words are counted already; begin a new count");
        scan_words(words, [&](const Word& word) { counts_->add(0, word); }, [] {});
    }
    PyCountedWords finish(const std::vector<std::string>& excluded) {
        is_finished_ = true;
        return {counts_, counted_words(counts_, excluded)};
    }

  private:
    std::shared_ptr<WordCounting> counts_;
    bool is_finished_ = false;
};

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
    nb::class_<PyVocabulary>(module, "WordVocabulary",
                             "Words by id and ids by word; the last ids are those of control symbols.")
        .def(
            "__init__",
            [](PyVocabulary* self, const nb::object& names, std::size_t controls) {
                new (self) PyVocabulary(vocabulary_of(names, controls));
            },
            nb::arg("names"), nb::arg("controls") = 2)
        .def("__len__", [](const PyVocabulary& self) { return self.vocabulary->size(); })
        .def("__getitem__", &name_at, nb::arg("id"))
        .def(
            "find",
            [](const PyVocabulary& self, const nb::str& word) -> std::int64_t {
                const std::optional<std::string_view> letters = letters_of(word);
                const std::uint32_t id =
                    letters ? self.vocabulary->find(Word::of(*letters)) : WordVocabulary::kNone;
                return id == WordVocabulary::kNone ? -1 : std::int64_t{id};
            },
            nb::arg("word"), "Return the id of a word, -1 if it is unknown or a control symbol.")
        .def("json_entries", &json_entries, nb::arg("from_id"), nb::arg("to_id"),
             "Return the entries of these words in `tokenizer.json` (UTF-8).")
        .def_static("from_json", &vocabulary_from_json, nb::arg("content"), nb::arg("begin"), nb::arg("end"),
                    nb::arg("controls"),
                    "Read the entries in these bytes of `tokenizer.json`; None unless they have the form "
                    "and order of `json_entries`.");
    nb::class_<PyCountedWords>(module, "CountedWords", "The words of a text with their counts.")
        .def_prop_ro(
            "types", [](const PyCountedWords& self) { return self.words.types(); },
            "Number of different words, without the excluded ones.")
        .def(
            "types_from",
            [](const PyCountedWords& self, std::uint64_t count) { return self.words.types_from(count); },
            nb::arg("count"), "Return the number of words with at least this count.")
        .def_prop_ro(
            "occurrences", [](const PyCountedWords& self) { return self.words.occurrences(); },
            "Number of words in the text, without the excluded ones.")
        .def(
            "excluded_count",
            [](const PyCountedWords& self, std::size_t i) { return self.words.excluded_count(i); },
            nb::arg("index"), "Return the count of the excluded word with this index.")
        .def("select", &select, nb::arg("most"), nb::arg("first"), nb::arg("last"),
             "Return the WordVocabulary of the `most` most frequent words, ties by code points, behind the "
             "names `first` and before the control symbols `last`.")
        .def("counts", &counts_of, "Count by word, by descending count, ties by code points.");
    module.def("count_plain_words", &count, nb::arg("text"), nb::arg("threads"),
               nb::arg("placeholder") = nb::none(), nb::arg("excluded") = std::vector<std::string>(),
               nb::arg("memory") = 0, nb::arg("folder") = "",
               "Count the words of a text in at most `memory` bytes (0: no limit), with a temporary file in "
               "`folder`; None if a line, or a word of a vocabulary, is too long.");
    module.def("count_words_of_lines", &count_block, nb::arg("lines"), nb::arg("placeholder") = nb::none(),
               "Count the words of lines in memory (UTF-8), by descending count, ties by code points.");
    nb::class_<WordEncoding>(module, "WordEncoding", "Mapping from words to ids, for the functions below.")
        .def(
            "__init__",
            [](WordEncoding* self, const PyVocabulary& vocabulary, nb::handle unk, nb::handle eos,
               const std::optional<std::string>& placeholder) {
                new (self)
                    WordEncoding{vocabulary.vocabulary, id_of(unk), id_of(eos), Splitting::of(placeholder)};
            },
            nb::arg("vocabulary"), nb::arg("unk"), nb::arg("eos"), nb::arg("placeholder") = nb::none());
    nb::class_<TextSample>(module, "TextSample", "Sizes of parts of a text and of their vocabulary.")
        .def(
            "__init__",
            [](TextSample* self, const std::optional<std::string>& placeholder) {
                new (self) TextSample(Splitting::of(placeholder));
            },
            nb::arg("placeholder").none())
        .def(
            "add",
            [](TextSample& self, const nb::bytes& lines) {
                const std::string_view text(lines.c_str(), lines.size());
                const nb::gil_scoped_release free;
                self.add(text);
            },
            nb::arg("lines"), "Add whole lines.")
        .def_prop_ro("bytes", &TextSample::bytes)
        .def_prop_ro("tokens", &TextSample::tokens)
        .def_prop_ro("types", &TextSample::types)
        .def("types_with", &TextSample::types_with, nb::arg("min_count"),
             "Return the number of words with at least this count.");
    nb::class_<PyVocabularyCounter>(module, "VocabularyCounter",
                                    "Counts words in at most `memory` bytes (0: no limit).")
        .def(nb::init<std::uint64_t, const std::string&>(), nb::arg("memory") = 0, nb::arg("folder") = "")
        .def("add", &PyVocabularyCounter::add, nb::arg("words"), "Count words separated by blanks.")
        .def("finish", &PyVocabularyCounter::finish, nb::arg("excluded") = std::vector<std::string>(),
             "Return the CountedWords; no word may be added afterwards.");
    module.def(
        "encode_plain_text", &encode, nb::arg("text"), nb::arg("encoding"), nb::arg("threads"),
        nb::arg("shortest") = 0, nb::arg("size") = 0, nb::arg("update") = nb::none(),
        "Encode the words of a text in one pass with `eos` after each line: the fields of EncodedText, and a "
        "sketch of at most `size` lines; `update` receives the text in order, as hashlib's does. None if "
        "a line is too long.");
    module.def(
        "encode_plain_words", &encode_to_file, nb::arg("text"), nb::arg("encoding"), nb::arg("threads"),
        nb::arg("ids_file"), nb::arg("shortest") = 0, nb::arg("size") = 0, nb::arg("update") = nb::none(),
        nb::arg("excluded") = std::vector<std::string>(), nb::arg("memory") = 0, nb::arg("folder") = "",
        "The same in bounded memory: the ids are written to `ids_file` as int32, and unknown words are "
        "counted as by count_plain_words (`spelled`).");
    module.def("count_ids", &count_ids, nb::arg("ids_file"), nb::arg("size"),
               "Return the number of occurrences of each id below `size` in a file of int32.");
    module.def(
        "encode_lines", &encode_block, nb::arg("lines"), nb::arg("encoding"),
        "Encode lines in memory (UTF-8, LF after each) as `encode_plain_text` does, without a sketch.");
    nb::class_<TextScan>(module, "TextScan", "The words of a text in order, and its counts, from one pass.")
        .def(
            "counted",
            [](const std::shared_ptr<TextScan>& scan, std::vector<std::string> excluded) {
                const auto for_each = [words = &scan->words()](const CountedWords::Visit& visit) {
                    for (const std::uint32_t number : words->order)
                        visit(words->words.word(number), words->counts[number]);
                };
                return PyCountedWords{scan, CountedWords(for_each, std::move(excluded))};
            },
            nb::arg("excluded") = std::vector<std::string>(), "Return the CountedWords.")
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
        .def("encode", &encode_scan, nb::arg("encoding"), nb::arg("threads"),
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
