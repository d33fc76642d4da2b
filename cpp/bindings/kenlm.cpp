// Classes behind `chainrule.kenlm` with KenLM's names and arguments, implemented in C++ so that decoders call
// the model without Python in between.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <compare>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "base/input_file.hpp"
#include "bindings/bindings.hpp"
#include "bindings/ngram.hpp"
#include "ngram/query/kenlm_model.hpp"
#include "ngram/query/sentences.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace chainrule {

namespace {

struct KenlmState : PyState {};

struct KenlmFullScore {
    double log_prob;
    std::uint32_t ngram_length;
    bool oov;
};

std::strong_ordering order_of(const KenlmState& one, const KenlmState& other) {
    const State &a = one.state, &b = other.state;
    if (const auto by = one.model <=> other.model; by != 0) return by;
    if (const auto by = a.stored <=> b.stored; by != 0) return by;
    for (std::uint32_t bits = a.stored; bits; bits &= bits - 1) {
        const auto i = static_cast<std::size_t>(std::countr_zero(bits));
        if (const auto by = a.children[i].from <=> b.children[i].from; by != 0) return by;
        if (const auto by = a.children[i].to <=> b.children[i].to; by != 0) return by;
    }
    return a.reach <=> b.reach;
}

bool is_true(nb::handle value) {
    const int is_true = PyObject_IsTrue(value.ptr());
    if (is_true < 0) throw nb::python_error();
    return is_true != 0;
}

// White space that the engine does not split at: line feed to carriage return.
bool has_other_white(std::string_view text) {
    bool has = false;
    for (const char c : text) has |= c >= '\n' && c <= '\r';
    return has;
}

// One step; `out` may alias `in`.
KenlmResult step(const KenlmModel& model, const KenlmState& in, nb::handle word, KenlmState& out) {
    State after;
    const KenlmResult answer = model.step(in.of(model.model()), TextViews::view_of(word.ptr()), after);
    out.set(after, model.model());
    return answer;
}

// log10 p of a sentence; word by word if a word is impossible.
double score(const KenlmModel& model, nb::handle sentence, nb::handle bos, nb::handle eos) {
    const std::string_view text = TextViews::view_of(sentence.ptr());
    const bool begins = is_true(bos), ends = is_true(eos);
    if (!has_other_white(text)) {
        const double sum = score_sentence(model.model(), text, begins, ends);
        if (std::isfinite(sum)) return sum * kLog10;
    }
    double sum = 0;
    model.each(text, begins, ends, [&](const KenlmResult& answer) { sum += answer.log_prob; });
    return sum;
}

nb::object full_scores(const KenlmModel& model, nb::handle sentence, nb::handle bos, nb::handle eos) {
    nb::list scores;
    model.each(TextViews::view_of(sentence.ptr()), is_true(bos), is_true(eos),
               [&](const KenlmResult& answer) {
                   scores.append(nb::make_tuple(answer.log_prob, answer.length, answer.is_unknown));
               });
    return nb::steal(PyObject_GetIter(scores.ptr()));
}

TextViews list_of(const nb::object& value) {
    if (PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()))
        throw nb::type_error("give a list of sentences; score takes a single one");
    return TextViews(value);
}

// Sentences for the engine: other white space is replaced by blanks.
class Sentences {
  public:
    explicit Sentences(std::span<const std::string_view> texts) {
        views_.reserve(texts.size());
        for (const std::string_view text : texts) views_.push_back(with_blanks(text));
    }
    const std::vector<std::string_view>& views() const { return views_; }

  private:
    std::string_view with_blanks(std::string_view text) {
        while (!text.empty() && is_white(text.back())) text.remove_suffix(1);
        if (!has_other_white(text)) return text;
        std::string& result = buffers_.emplace_back(text);
        for (char& c : result) c = is_white(c) ? ' ' : c;
        return result;
    }

    std::deque<std::string> buffers_;
    std::vector<std::string_view> views_;
};

using Doubles = nb::ndarray<nb::numpy, double>;

// log10 p of each sentence; those with an impossible word are scored again word by word.
Doubles sums_of(const KenlmModel& model, const std::vector<std::string_view>& sentences,
                const SentenceOptions& options) {
    std::vector<double> sums;
    {
        const nb::gil_scoped_release free;
        sums = score_sentences(model.model(), sentences, options).log_probs;
        for (std::size_t i = 0; i < sums.size(); ++i) {
            if (std::isfinite(sums[i])) {
                sums[i] *= kLog10;
                continue;
            }
            sums[i] = 0;
            model.each(sentences[i], options.begins, options.ends,
                       [&](const KenlmResult& answer) { sums[i] += answer.log_prob; });
        }
    }
    const std::size_t size = sums.size();
    return to_numpy_array(std::move(sums), {size});
}

Doubles score_list(const KenlmModel& model, const nb::object& value, nb::handle bos, nb::handle eos,
                   std::int64_t threads) {
    const TextViews texts = list_of(value);
    const Sentences sentences(texts.views());
    return sums_of(model, sentences.views(), {is_true(bos), is_true(eos), checked_threads(threads)});
}

Doubles score_lines(const KenlmModel& model, const std::filesystem::path& path, nb::handle bos,
                    nb::handle eos, std::int64_t threads) {
    const std::string text = [&] {
        const nb::gil_scoped_release free;
        return read_whole(path.string());
    }();
    const Sentences lines(split_text_lines(text));
    return sums_of(model, lines.views(), {is_true(bos), is_true(eos), checked_threads(threads)});
}

// Tokens [from, to) of one sentence; scored again word by word if a word is impossible.
void to_log10(const KenlmModel& model, std::string_view sentence, const SentenceOptions& options,
              TokenScores& scores, std::size_t from, std::size_t to) {
    bool is_possible = true;
    for (std::size_t t = from; t < to; ++t) {
        is_possible &= std::isfinite(scores.log_probs[t]);
        scores.log_probs[t] *= static_cast<float>(kLog10);
    }
    if (is_possible) return;
    model.each(sentence, options.begins, options.ends, [&](const KenlmResult& answer) {
        scores.log_probs[from] = static_cast<float>(answer.log_prob);
        scores.lengths[from++] = static_cast<std::uint8_t>(answer.length);
    });
}

nb::tuple full_score_list(const KenlmModel& model, const nb::object& value, nb::handle bos, nb::handle eos,
                          std::int64_t threads) {
    const TextViews texts = list_of(value);
    const Sentences sentences(texts.views());
    const SentenceOptions options{is_true(bos), is_true(eos), checked_threads(threads)};
    TokenScores scores;
    {
        const nb::gil_scoped_release free;
        scores = score_tokens(model.model(), sentences.views(), options);
        std::size_t from = 0;
        for (std::size_t i = 0; i < scores.ends.size(); ++i) {
            const auto end = static_cast<std::size_t>(scores.ends[i]);
            to_log10(model, sentences.views()[i], options, scores, from, end);
            from = end;
        }
    }
    const std::size_t N = scores.log_probs.size(), S = scores.ends.size();
    return nb::make_tuple(
        to_numpy_array(std::move(scores.log_probs), {N}), to_numpy_array(std::move(scores.lengths), {N}),
        to_numpy_array(std::move(scores.unknown), {N}), to_numpy_array(std::move(scores.ends), {S}));
}

void bind_state(nb::module_& module) {
    nb::class_<KenlmState>(module, "KenlmState")
        .def(nb::init<>())
        .def(
            "__eq__", [](const KenlmState& a, const KenlmState& b) { return a == b; }, nb::is_operator())
        .def(
            "__lt__", [](const KenlmState& a, const KenlmState& b) { return order_of(a, b) < 0; },
            nb::is_operator())
        .def(
            "__le__", [](const KenlmState& a, const KenlmState& b) { return order_of(a, b) <= 0; },
            nb::is_operator())
        .def(
            "__gt__", [](const KenlmState& a, const KenlmState& b) { return order_of(a, b) > 0; },
            nb::is_operator())
        .def(
            "__ge__", [](const KenlmState& a, const KenlmState& b) { return order_of(a, b) >= 0; },
            nb::is_operator())
        .def("__hash__", [](const KenlmState& s) { return static_cast<std::int64_t>(s.hash() >> 2); })
        .def("__copy__", [](const KenlmState& s) { return s; })
        .def("__deepcopy__", [](const KenlmState& s, nb::handle) { return s; }, "memo"_a = nb::none());
    nb::class_<KenlmFullScore>(module, "KenlmFullScore")
        .def(nb::init<double, std::uint32_t, bool>(), "log_prob"_a, "ngram_length"_a, "oov"_a)
        .def_ro("log_prob", &KenlmFullScore::log_prob)
        .def_ro("ngram_length", &KenlmFullScore::ngram_length)
        .def_ro("oov", &KenlmFullScore::oov)
        .def("__repr__", [](const KenlmFullScore& s) {
            return nb::str("FullScoreReturn({}, {}, {})").format(s.log_prob, s.ngram_length, s.oov);
        });
}

}  // namespace

void bind_kenlm(nb::module_& module) {
    bind_state(module);
    nb::class_<KenlmModel>(module, "KenlmModel")
        .def(
            "__init__",
            [](KenlmModel* result, const PyNgramModel& engine) { new (result) KenlmModel(engine.model); },
            "engine"_a)
        .def_prop_ro("order", [](const KenlmModel& model) { return model.model().order(); })
        .def("BeginSentenceWrite",
             [](const KenlmModel& model, KenlmState& state) { state.set(model.begin(), model.model()); })
        .def("NullContextWrite", [](const KenlmModel&, KenlmState& state) { state.clear(); })
        .def("BaseScore", [](const KenlmModel& model, const KenlmState& in, nb::handle word,
                             KenlmState& out) { return step(model, in, word, out).log_prob; })
        .def("BaseFullScore",
             [](const KenlmModel& model, const KenlmState& in, nb::handle word, KenlmState& out) {
                 const KenlmResult answer = step(model, in, word, out);
                 return KenlmFullScore{answer.log_prob, answer.length, answer.is_unknown};
             })
        .def("__contains__", [](const KenlmModel& model,
                                nb::handle word) { return model.knows(TextViews::view_of(word.ptr())); })
        .def("score", &score, "sentence"_a, "bos"_a = true, "eos"_a = true)
        .def("full_scores", &full_scores, "sentence"_a, "bos"_a = true, "eos"_a = true)
        .def("score_list", &score_list, "sentences"_a, "bos"_a, "eos"_a, "threads"_a)
        .def("score_lines", &score_lines, "path"_a, "bos"_a, "eos"_a, "threads"_a)
        .def("full_score_list", &full_score_list, "sentences"_a, "bos"_a, "eos"_a, "threads"_a);
}

}  // namespace chainrule
