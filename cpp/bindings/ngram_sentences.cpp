// What an n-gram model is asked with text, and word by word from states, for Python.
#include <nanobind/operators.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/input_file.hpp"
#include "bindings/ngram.hpp"
#include "ngram/query/sentences.hpp"
#include "speller/speller.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

using Doubles = nb::ndarray<nb::numpy, double>;
using Longs = nb::ndarray<nb::numpy, std::int64_t>;
using Sums = std::tuple<Doubles, Longs, Longs>;

Sums for_python(SentenceScores found) {
    const std::size_t S = found.log_probs.size();
    return {array_of(std::move(found.log_probs), {S}), array_of(std::move(found.tokens), {S}),
            array_of(std::move(found.unknowns), {S})};
}

Sums score_texts(const PyNgramModel& self, const nb::object& sentences, bool bos, bool eos,
                 std::int64_t threads, const std::optional<std::string>& placeholder) {
    const SentenceOptions options{bos, eos, threads_of(threads), nullptr, Splitting::of(placeholder)};
    const Texts texts(sentences);
    SentenceScores found;
    {
        const nb::gil_scoped_release free;
        found = score_sentences(*self.model, texts.views(), options);
    }
    return for_python(std::move(found));
}

Sums score_file(const PyNgramModel& self, const std::filesystem::path& path, bool bos, bool eos,
                std::int64_t threads) {
    const SentenceOptions options{bos, eos, threads_of(threads)};
    SentenceScores found;
    {
        const nb::gil_scoped_release free;
        const std::string text = read_whole(path.string());
        found = score_sentences(*self.model, lines_of(text), options);
    }
    return for_python(std::move(found));
}

std::tuple<Doubles, Longs, Doubles> score_spelled(const PyNgramModel& self, const nb::object& sentences,
                                                  const Speller& speller, std::int64_t threads,
                                                  const std::optional<std::string>& placeholder) {
    const SentenceOptions options{true, true, threads_of(threads), &speller, Splitting::of(placeholder)};
    const Texts texts(sentences);
    SentenceScores found;
    {
        const nb::gil_scoped_release free;
        found = score_sentences(*self.model, texts.views(), options);
    }
    const std::size_t S = found.log_probs.size();
    return {array_of(std::move(found.log_probs), {S}), array_of(std::move(found.tokens), {S}),
            array_of(std::move(found.spellings), {S})};
}

std::tuple<nb::ndarray<nb::numpy, float>, nb::ndarray<nb::numpy, std::uint8_t>,
           nb::ndarray<nb::numpy, std::uint8_t>, Longs>
full_scores(const PyNgramModel& self, const nb::object& sentences, bool bos, bool eos, std::int64_t threads) {
    const SentenceOptions options{bos, eos, threads_of(threads)};
    const Texts texts(sentences);
    TokenScores found;
    {
        const nb::gil_scoped_release free;
        found = score_tokens(*self.model, texts.views(), options);
    }
    const std::size_t N = found.log_probs.size(), S = found.ends.size();
    return {array_of(std::move(found.log_probs), {N}), array_of(std::move(found.lengths), {N}),
            array_of(std::move(found.unknown), {N}), array_of(std::move(found.ends), {S})};
}

std::tuple<double, std::uint32_t, bool> advance(const PyNgramModel& self, const PyState& state,
                                                const nb::object& word, PyState& out) {
    const ModelFacts& facts = self.model->facts();
    std::uint32_t number = facts.unknown;
    bool is_unknown = true;
    if (PyLong_Check(word.ptr())) {
        number = number_in(nb::cast<std::int64_t>(word), 0, std::int64_t{facts.vocabulary} - 1, "word");
        is_unknown = number == facts.unknown;
    } else {
        if (!self.model->names()) throw Failure("this model knows words by number alone");
        const std::int64_t found = self.model->names()->find(Texts::view_of(word.ptr()));
        if (found >= 0) number = static_cast<std::uint32_t>(found);
        is_unknown = number == facts.unknown;
    }
    State after;
    const Answer answer = self.model->step(state.of(*self.model), number, after);
    out.set(after, *self.model);
    return {answer.log_prob, answer.length, is_unknown};
}

}  // namespace

void bind_sentences(nb::module_& module, NgramClass& bound) {
    nb::class_<PyState>(module, "NgramState", "What a model remembers of the words read: a value.")
        .def(nb::init<>())
        .def(
            "__eq__", [](const PyState& a, const PyState& b) { return a == b; }, nb::is_operator())
        .def("__hash__", [](const PyState& a) { return static_cast<std::int64_t>(a.hash() >> 2); })
        .def("copy", [](const PyState& a) { return a; });
    bound
        .def("score_sentences", &score_texts, nb::arg("sentences"), nb::arg("bos") = true,
             nb::arg("eos") = true, nb::arg("threads") = 1, nb::arg("placeholder") = nb::none(),
             "Of each sentence log p, how many tokens it has, how many are unknown. With a placeholder "
             "punctuation is split off first, and the placeholder is one token.")
        .def("score_file", &score_file, nb::arg("path"), nb::arg("bos") = true, nb::arg("eos") = true,
             nb::arg("threads") = 1, "The same of each line of a file.")
        .def(
            "score_spelled", &score_spelled, nb::arg("sentences"), nb::arg("speller"), nb::arg("threads") = 1,
            nb::arg("placeholder") = nb::none(),
            "Of each sentence log p, how many tokens it has, and log p of how its unknown words are written.")
        .def("full_scores", &full_scores, nb::arg("sentences"), nb::arg("bos") = true, nb::arg("eos") = true,
             nb::arg("threads") = 1,
             "Of each token log p, the length of the n-gram that answered, 1 where it is unknown; and where "
             "each "
             "sentence's tokens end.")
        .def("begin_state",
             [](const PyNgramModel& self) {
                 PyState state;
                 state.set(self.model->begin(), *self.model);
                 return state;
             })
        .def("null_state", [](const PyNgramModel&) { return PyState{}; })
        .def("advance", &advance, nb::arg("state"), nb::arg("word"), nb::arg("out"),
             "log p of a word, given as text or by number, the length of the n-gram that answered, and "
             "whether it "
             "is unknown; `out` becomes the state after it.");
}

}  // namespace chainrule
