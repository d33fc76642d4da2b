// The speller for Python.
#include "speller/speller.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.hpp"
#include "bindings/bindings.hpp"
#include "bindings/ngram.hpp"
#include "speller/character_trie.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

struct PyCharacterTrie {
    std::shared_ptr<CharacterTrie> trie;
};

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

// The words of a list, the counted words and the marked words of a vocabulary; each may be None.
struct Examples {
    std::optional<TextViews> spellings;
    const CountedWords* counted = nullptr;
    const WordVocabulary* vocabulary = nullptr;
    std::span<const bool> is_marked;

    void operator()(const VisitWord& visit) const {
        if (spellings)
            for (const std::string_view word : spellings->views()) visit(word, 1);
        if (counted) counted->for_each(visit);
        for (std::size_t id = 0; id < is_marked.size(); ++id)
            if (is_marked[id]) visit(vocabulary->name(id), 1);
    }
};

void count_characters(PyCharacterTrie* self, const nb::object& spellings, const nb::object& counted,
                      const nb::object& vocabulary, const nb::object& is_marked, std::size_t order,
                      bool is_single, std::size_t windows) {
    Examples examples;
    if (!spellings.is_none()) examples.spellings.emplace(spellings);
    if (!counted.is_none()) examples.counted = &nb::cast<const PyCountedWords&>(counted).words;
    AnyArray marks;
    if (!vocabulary.is_none()) {
        examples.vocabulary = nb::cast<const PyVocabulary&>(vocabulary).vocabulary.get();
        if (is_marked.is_none()) throw ArgumentError("is_marked is missing");
        marks = nb::cast<AnyArray>(is_marked);
        examples.is_marked = checked_span<bool>(marks, "is_marked", "bool");
        if (examples.is_marked.size() > examples.vocabulary->size())
            throw ArgumentError("there are more marks than words");
    }
    const nb::gil_scoped_release free;
    new (self) PyCharacterTrie{std::make_shared<CharacterTrie>(
        [&](const VisitWord& visit) { examples(visit); }, order, is_single, windows)};
}

template <class T>
std::vector<T> vector_of(const AnyArray& array, const char* name, const char* type) {
    const std::span<const T> values = checked_span<T>(array, name, type);
    return {values.begin(), values.end()};
}

PyCharacterTrie trie_of(const AnyArray& alphabet, const std::vector<std::vector<AnyArray>>& arrays) {
    std::vector<CharacterTrie::Level> levels;
    for (const std::vector<AnyArray>& level : arrays) {
        if (level.size() != 3) throw ArgumentError("a level of the speller has three arrays");
        levels.push_back({vector_of<std::uint32_t>(level[0], "word", "uint32"),
                          vector_of<std::uint32_t>(level[1], "first", "uint32"),
                          vector_of<std::uint64_t>(level[2], "count", "uint64")});
    }
    return {std::make_shared<CharacterTrie>(vector_of<std::uint32_t>(alphabet, "alphabet", "uint32"),
                                            std::move(levels))};
}

const CharacterTrie::Level& level_of(const PyCharacterTrie& self, std::size_t n) {
    const auto& levels = self.trie->levels();
    if (n < 1 || n > levels.size()) throw ArgumentError("the speller has no order " + std::to_string(n));
    return levels[n - 1];
}

template <class T>
nb::ndarray<nb::numpy, T> copy_of(const std::vector<T>& values) {
    std::vector<T> copy(values);
    const std::size_t size = copy.size();
    return to_numpy_array(std::move(copy), {size});
}

nb::tuple estimate(PyCharacterTrie& self, std::size_t n, const AnyArray& shorter) {
    CharacterTrie::Estimate result;
    const auto values = checked_span<double>(shorter, "shorter", "float64");
    {
        const nb::gil_scoped_release free;
        result = self.trie->estimate(n, values);
    }
    const std::size_t rows = result.p.size(), contexts = result.gamma.size();
    return nb::make_tuple(to_numpy_array(std::move(result.p), {rows}),
                          to_numpy_array(std::move(result.gamma), {contexts}));
}

// `logs`: of each order the log-probabilities and the logarithms of the weights.
void speller_of_trie(Speller* self, const PyCharacterTrie& trie,
                     const std::vector<std::vector<AnyArray>>& logs, double log_others, double log_outside,
                     bool is_single, std::string placeholder, double log_placeholder) {
    std::vector<SpellerLogs> levels;
    for (const std::vector<AnyArray>& level : logs) {
        if (level.size() != 2) throw ArgumentError("a level of the speller has two arrays of logarithms");
        levels.push_back({vector_of<float>(level[0], "log_probs", "float32"),
                          vector_of<float>(level[1], "log_backoffs", "float32")});
    }
    new (self) Speller(
        {trie.trie->alphabet(), log_others, log_outside, is_single, std::move(placeholder), log_placeholder},
        trie.trie, std::move(levels));
}

nb::ndarray<nb::numpy, double> vocabulary_log_probs(const Speller& self, const PyVocabulary& vocabulary,
                                                    const std::vector<std::size_t>& excluded,
                                                    const nb::object& others, std::size_t threads) {
    const WordVocabulary& words = *vocabulary.vocabulary;
    const TextViews texts(others);
    std::vector<double> result;
    {
        const nb::gil_scoped_release free;
        std::vector<std::uint32_t> ids;
        std::vector<bool> is_excluded(words.size());
        for (const std::size_t id : excluded)
            if (id < words.size()) is_excluded[id] = true;
        result.reserve(words.size() + texts.views().size());
        const std::size_t parts = std::clamp<std::size_t>(threads, 1, 256);
        std::vector<std::size_t> begins{0};  // of each part in the result
        for (std::size_t t = 0; t < parts; ++t) {
            std::size_t size = 0;
            for (std::size_t id = part_begin(words.size(), t, parts);
                 id < part_begin(words.size(), t + 1, parts); ++id)
                size += !is_excluded[id];
            begins.push_back(begins.back() + size);
        }
        result.resize(begins.back());
        parallel_for(parts, [&](std::size_t t) {
            Speller::CachedScorer reader(self);
            std::size_t at = begins[t];
            for (std::size_t id = part_begin(words.size(), t, parts);
                 id < part_begin(words.size(), t + 1, parts); ++id)
                if (!is_excluded[id]) result[at++] = reader.log_prob(words.name(id));
        });
        for (const std::string_view word : texts.views()) result.push_back(self.log_prob(word));
    }
    const std::size_t N = result.size();
    return to_numpy_array(std::move(result), {N});
}

}  // namespace

void bind_speller(nb::module_& module) {
    nb::class_<PyCharacterTrie>(module, "CharacterTrie", "Counts of the character n-grams of words.")
        .def("__init__", &count_characters, nb::arg("spellings").none() = nb::none(),
             nb::arg("counted").none() = nb::none(), nb::arg("vocabulary").none() = nb::none(),
             nb::arg("is_marked").none() = nb::none(), nb::arg("order"), nb::arg("is_single") = false,
             nb::arg("windows") = CharacterTrie::kWindows,
             "Count the n-grams of the words of a list, of CountedWords, and of the marked words of a "
             "WordVocabulary; `windows` of them are sorted at once.")
        .def_static("of_levels", &trie_of, nb::arg("alphabet"), nb::arg("levels"),
                    "Return the trie with these arrays by order: last characters, first rows behind each "
                    "row, counts.")
        .def_prop_ro("order", [](const PyCharacterTrie& self) { return self.trie->levels().size(); })
        .def_prop_ro(
            "alphabet", [](const PyCharacterTrie& self) { return copy_of(self.trie->alphabet()); },
            nb::rv_policy::automatic)
        .def(
            "word",
            [](const PyCharacterTrie& self, std::size_t n) { return copy_of(level_of(self, n).word); },
            nb::arg("n"), "Return the last character of each row of order n.")
        .def(
            "first",
            [](const PyCharacterTrie& self, std::size_t n) { return copy_of(level_of(self, n).first); },
            nb::arg("n"), "Return the first row of order n + 1 behind each row, and their number.")
        .def(
            "count",
            [](const PyCharacterTrie& self, std::size_t n) { return copy_of(level_of(self, n).count); },
            nb::arg("n"), "Return the count of each row of order n.")
        .def("estimate", &estimate, nb::arg("n"), nb::arg("shorter"),
             "Return the Witten-Bell probabilities of the rows of order n, given those of order n - 1 (of "
             "order 1: "
             "the uniform distribution), and the back-off weights of their contexts; call once for each "
             "order in "
             "turn, which releases the counts.");
    nb::class_<Speller>(module, "Speller", "Character n-gram model of the spelling of unknown words.")
        .def("__init__", &make_speller, nb::arg("alphabet"), nb::arg("levels"), nb::arg("log_others"),
             nb::arg("log_outside"), nb::arg("is_single"), nb::arg("placeholder") = "",
             nb::arg("log_placeholder") = 0.0)
        .def("__init__", &speller_of_trie, nb::arg("trie"), nb::arg("logs"), nb::arg("log_others"),
             nb::arg("log_outside"), nb::arg("is_single"), nb::arg("placeholder") = "",
             nb::arg("log_placeholder") = 0.0)
        .def("vocabulary_log_probs", &vocabulary_log_probs, nb::arg("vocabulary"), nb::arg("excluded"),
             nb::arg("others"), nb::arg("threads"),
             "Return log p(spelling | unknown) of the words of a WordVocabulary without the ids `excluded`, "
             "then "
             "of other words.")
        .def("log_probs", &log_probs, nb::arg("words"), "Return log p(spelling | unknown) of each word.");
}

}  // namespace chainrule
