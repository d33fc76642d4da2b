// The classes behind `chainrule.kenlm`: KenLM's names and arguments, so that no Python stands between a
// decoder and the model.
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
    if (const auto by = a.found <=> b.found; by != 0) return by;
    for (std::uint32_t bits = a.found; bits; bits &= bits - 1) {
        const auto i = static_cast<std::size_t>(std::countr_zero(bits));
        if (const auto by = a.children[i].from <=> b.children[i].from; by != 0) return by;
        if (const auto by = a.children[i].to <=> b.children[i].to; by != 0) return by;
    }
    return a.reach <=> b.reach;
}

bool is_true(nb::handle given) {
    const int found = PyObject_IsTrue(given.ptr());
    if (found < 0) throw nb::python_error();
    return found != 0;
}

// White space that does not part words in the engine: line feed to carriage return.
bool has_other_white(std::string_view text) {
    bool has = false;
    for (const char c : text) has |= c >= '\n' && c <= '\r';
    return has;
}

// One step, `out` perhaps being `in` itself.
KenlmAnswer step(const KenlmModel& model, const KenlmState& in, nb::handle word, KenlmState& out) {
    State after;
    const KenlmAnswer answer = model.step(in.of(model.model()), Texts::view_of(word.ptr()), after);
    out.set(after, model.model());
    return answer;
}

// log10 of a sentence in which no word is impossible, else word by word.
double score(const KenlmModel& model, nb::handle sentence, nb::handle bos, nb::handle eos) {
    const std::string_view text = Texts::view_of(sentence.ptr());
    const bool begins = is_true(bos), ends = is_true(eos);
    if (!has_other_white(text)) {
        const double sum = score_sentence(model.model(), text, begins, ends);
        if (std::isfinite(sum)) return sum * kLog10;
    }
    double sum = 0;
    model.each(text, begins, ends, [&](const KenlmAnswer& answer) { sum += answer.log_prob; });
    return sum;
}

nb::object full_scores(const KenlmModel& model, nb::handle sentence, nb::handle bos, nb::handle eos) {
    nb::list found;
    model.each(Texts::view_of(sentence.ptr()), is_true(bos), is_true(eos), [&](const KenlmAnswer& answer) {
        found.append(nb::make_tuple(answer.log_prob, answer.length, answer.is_unknown));
    });
    return nb::steal(PyObject_GetIter(found.ptr()));
}

Texts list_of(const nb::object& given) {
    if (PyUnicode_Check(given.ptr()) || PyBytes_Check(given.ptr()))
        throw nb::type_error("give a list of sentences; score takes a single one");
    return Texts(given);
}

// Many sentences as the engine reads them: cut at blanks and tabs, which other white space is made here.
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
        std::string& made = made_.emplace_back(text);
        for (char& c : made) c = is_white(c) ? ' ' : c;
        return made;
    }

    std::deque<std::string> made_;
    std::vector<std::string_view> views_;
};

using Doubles = nb::ndarray<nb::numpy, double>;

// log10 of each; a sentence with an impossible word is asked again word by word.
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
                       [&](const KenlmAnswer& answer) { sums[i] += answer.log_prob; });
        }
    }
    const std::size_t size = sums.size();
    return array_of(std::move(sums), {size});
}

Doubles score_list(const KenlmModel& model, const nb::object& given, nb::handle bos, nb::handle eos,
                   std::int64_t threads) {
    const Texts texts = list_of(given);
    const Sentences sentences(texts.views());
    return sums_of(model, sentences.views(), {is_true(bos), is_true(eos), threads_of(threads)});
}

Doubles score_lines(const KenlmModel& model, const std::filesystem::path& path, nb::handle bos,
                    nb::handle eos, std::int64_t threads) {
    const std::string text = [&] {
        const nb::gil_scoped_release free;
        return read_whole(path.string());
    }();
    const Sentences lines(lines_of(text));
    return sums_of(model, lines.views(), {is_true(bos), is_true(eos), threads_of(threads)});
}

// The tokens [from, to), which are a sentence; one with an impossible word is asked again word by word.
void to_log10(const KenlmModel& model, std::string_view sentence, const SentenceOptions& options,
              TokenScores& found, std::size_t from, std::size_t to) {
    bool is_possible = true;
    for (std::size_t t = from; t < to; ++t) {
        is_possible &= std::isfinite(found.log_probs[t]);
        found.log_probs[t] *= static_cast<float>(kLog10);
    }
    if (is_possible) return;
    model.each(sentence, options.begins, options.ends, [&](const KenlmAnswer& answer) {
        found.log_probs[from] = static_cast<float>(answer.log_prob);
        found.lengths[from++] = static_cast<std::uint8_t>(answer.length);
    });
}

nb::tuple full_score_list(const KenlmModel& model, const nb::object& given, nb::handle bos, nb::handle eos,
                          std::int64_t threads) {
    const Texts texts = list_of(given);
    const Sentences sentences(texts.views());
    const SentenceOptions options{is_true(bos), is_true(eos), threads_of(threads)};
    TokenScores found;
    {
        const nb::gil_scoped_release free;
        found = score_tokens(model.model(), sentences.views(), options);
        std::size_t from = 0;
        for (std::size_t i = 0; i < found.ends.size(); ++i) {
            const auto end = static_cast<std::size_t>(found.ends[i]);
            to_log10(model, sentences.views()[i], options, found, from, end);
            from = end;
        }
    }
    const std::size_t N = found.log_probs.size(), S = found.ends.size();
    return nb::make_tuple(array_of(std::move(found.log_probs), {N}), array_of(std::move(found.lengths), {N}),
                          array_of(std::move(found.unknown), {N}), array_of(std::move(found.ends), {S}));
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
            [](KenlmModel* made, const PyNgramModel& engine) { new (made) KenlmModel(engine.model); },
            "engine"_a)
        .def_prop_ro("order", [](const KenlmModel& model) { return model.model().order(); })
        .def("BeginSentenceWrite",
             [](const KenlmModel& model, KenlmState& state) { state.set(model.begin(), model.model()); })
        .def("NullContextWrite", [](const KenlmModel&, KenlmState& state) { state.clear(); })
        .def("BaseScore", [](const KenlmModel& model, const KenlmState& in, nb::handle word,
                             KenlmState& out) { return step(model, in, word, out).log_prob; })
        .def("BaseFullScore",
             [](const KenlmModel& model, const KenlmState& in, nb::handle word, KenlmState& out) {
                 const KenlmAnswer answer = step(model, in, word, out);
                 return KenlmFullScore{answer.log_prob, answer.length, answer.is_unknown};
             })
        .def("__contains__",
             [](const KenlmModel& model, nb::handle word) { return model.knows(Texts::view_of(word.ptr())); })
        .def("score", &score, "sentence"_a, "bos"_a = true, "eos"_a = true)
        .def("full_scores", &full_scores, "sentence"_a, "bos"_a = true, "eos"_a = true)
        .def("score_list", &score_list, "sentences"_a, "bos"_a, "eos"_a, "threads"_a)
        .def("score_lines", &score_lines, "path"_a, "bos"_a, "eos"_a, "threads"_a)
        .def("full_score_list", &full_score_list, "sentences"_a, "bos"_a, "eos"_a, "threads"_a);
}

}  // namespace chainrule
