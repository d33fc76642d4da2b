// Python bindings of NgramModel queries: batches of ids, next words, sentences, states.
#include <nanobind/operators.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/buffer.hpp"
#include "base/input_file.hpp"
#include "base/parallel.hpp"
#include "bindings/ngram.hpp"
#include "ngram/query/model.hpp"
#include "ngram/query/sentences.hpp"
#include "speller/speller.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

using Doubles = nb::ndarray<nb::numpy, double>;

constexpr std::size_t kMaxAnswers = static_cast<std::size_t>(-1) / 32;  // upper bound on the size of a result
constexpr std::size_t kLongestLine = std::size_t{1} << 30;              // words that are one segment
constexpr std::size_t kSteps = 256;                                     // steps of a long row per work item

// A (rows, columns) array of valid word ids.
struct Words {
    std::span<const std::int32_t> values;
    std::size_t rows, columns;

    std::span<const std::int32_t> row(std::size_t i) const { return values.subspan(i * columns, columns); }
};

void check_ids(const PyNgramModel& self, std::span<const std::int32_t> values, const char* name) {
    const std::uint32_t V = self.model->metadata().vocabulary;
    std::uint32_t most = 0;  // negative ids become large unsigned numbers
    for (const std::int32_t word : values) most = std::max(most, static_cast<std::uint32_t>(word));
    if (most >= V) {
        throw ArgumentError(std::string(name) + " contains the id " +
                            std::to_string(static_cast<std::int32_t>(most)) +
                            "; the ids of the model are 0 to " + std::to_string(V - 1));
    }
}

Words words_of(const PyNgramModel& self, const AnyArray& array, const char* name) {
    const auto values = checked_span<std::int32_t>(array, name, "int32", 2);
    check_ids(self, values, name);
    return {values, array.shape(0), array.shape(1)};
}

void check_shape(const Words& words, std::size_t columns, const char* name) {
    if (words.columns == columns) return;
    throw ArgumentError(std::string(name) + " has rows of " + std::to_string(words.columns) + " words, not " +
                        std::to_string(columns));
}

struct Batch {
    Words tokens, targets;
};

Batch batch_of(const PyNgramModel& self, const AnyArray& tokens, const AnyArray& targets) {
    const Batch batch{words_of(self, tokens, "tokens"), words_of(self, targets, "targets")};
    check_shape(batch.tokens, batch.targets.columns + self.model->order() - 1, "tokens");
    if (batch.tokens.rows != batch.targets.rows)
        throw ArgumentError("tokens and targets have different rows");
    return batch;
}

// Splits rows into segments. The context of target t is the n − 1 words up to input t, so a segment may begin
// anywhere by reading those.
std::vector<Piece> pieces_of(const Model& model, const Batch& batch, double* log_probs) {
    const std::size_t before = model.order() - 1, T = batch.targets.columns;
    const ModelMetadata& metadata = model.metadata();
    const auto is_begin = [&](std::int32_t word) {
        const auto w = static_cast<std::uint32_t>(word);
        return w == metadata.begin || (w == metadata.end && !metadata.is_stream);
    };
    std::vector<Piece> pieces;
    for (std::size_t row = 0; T > 0 && row < batch.targets.rows; ++row) {
        const std::int32_t* const tokens = batch.tokens.row(row).data();
        for (std::size_t t = 0; t < T; t += kSteps) {
            Piece piece;
            piece.before = tokens + t + 1;
            piece.before_size = static_cast<std::uint32_t>(before);
            piece.begins = std::all_of(piece.before, piece.before + before, is_begin);
            piece.inputs = tokens + before + t + 1;  // input after each target except the last
            piece.targets = batch.targets.row(row).data() + t;
            piece.size = static_cast<std::uint32_t>(std::min(kSteps, T - t));
            piece.log_probs = log_probs + row * T + t;
            pieces.push_back(piece);
        }
    }
    return pieces;
}

Doubles score(const PyNgramModel& self, const AnyArray& tokens, const AnyArray& targets,
              std::int64_t threads) {
    const std::size_t workers = checked_threads(threads);
    const Batch batch = batch_of(self, tokens, targets);
    std::vector<double> log_probs(batch.targets.values.size());
    {
        const nb::gil_scoped_release free;
        self.model->score(pieces_of(*self.model, batch, log_probs.data()), workers);
    }
    return to_numpy_array(std::move(log_probs), {batch.targets.rows, batch.targets.columns});
}

// Scores lines stored end to end, each from <s> to its </s>; the last line may lack its </s>.
Doubles score_lines(const PyNgramModel& self, const AnyArray& ids, std::int64_t threads) {
    const std::size_t workers = checked_threads(threads);
    const Model& model = *self.model;
    if (model.metadata().is_stream) throw ArgumentError("a stream model does not score separate lines");
    const auto values = checked_span<std::int32_t>(ids, "ids", "int32");
    check_ids(self, values, "ids");
    UninitializedBuffer<double> log_probs(values.size());
    {
        const nb::gil_scoped_release free;
        const auto end = static_cast<std::int32_t>(model.metadata().end);
        std::vector<Piece> pieces;
        pieces.reserve(static_cast<std::size_t>(std::count(values.begin(), values.end(), end)) + 1);
        for (std::size_t from = 0; from < values.size();) {
            const auto last =
                std::find(values.begin() + static_cast<std::ptrdiff_t>(from), values.end(), end);
            const auto found = static_cast<std::size_t>(last - values.begin());
            const std::size_t to = std::min({found + 1, values.size(), from + kLongestLine});
            Piece piece;
            piece.begins = from == 0 || values[from - 1] == end;
            if (!piece.begins) {  // the rest of a very long line
                piece.before_size = static_cast<std::uint32_t>(model.order() - 1);
                piece.before = values.data() + from - piece.before_size;
            }
            piece.targets = values.data() + from;
            piece.size = static_cast<std::uint32_t>(to - from);
            piece.log_probs = log_probs.data() + from;
            pieces.push_back(piece);
            from = to;
        }
        model.score(pieces, workers);
    }
    const std::size_t N = log_probs.size();
    return to_numpy_array(std::move(log_probs), {N});
}

// Calls work(i) for all rows i on several threads.
template <class Work>
void for_rows(std::size_t rows, std::size_t threads, const Work& work) {
    std::atomic<std::size_t> next{0};
    parallel_for(std::clamp<std::size_t>(threads, 1, std::max<std::size_t>(rows, 1)), [&](std::size_t) {
        for (std::size_t i; (i = next.fetch_add(1)) < rows;) work(i);
    });
}

Words states_of(const PyNgramModel& self, const AnyArray& tokens) {
    const Words words = words_of(self, tokens, "tokens");
    check_shape(words, self.model->order() - 1, "tokens");
    return words;
}

Doubles step(const PyNgramModel& self, const AnyArray& tokens, std::int64_t threads) {
    const std::size_t workers = checked_threads(threads);
    const Words words = states_of(self, tokens);
    const std::size_t V = self.model->metadata().vocabulary;
    if (words.rows > kMaxAnswers / V) throw std::bad_alloc();
    auto log_probs = std::make_unique<double[]>(std::max<std::size_t>(words.rows * V, 1));
    {
        const nb::gil_scoped_release free;
        for_rows(words.rows, workers, [&](std::size_t i) {
            self.model->next(self.model->after(words.row(i)), log_probs.get() + i * V);
        });
    }
    double* const data = log_probs.get();
    const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<double*>(p); });
    log_probs.release();
    return Doubles(data, {words.rows, V}, owner);
}

std::tuple<nb::ndarray<nb::numpy, std::uint8_t>, Doubles, Doubles, nb::ndarray<nb::numpy, bool>> depth(
    const PyNgramModel& self, const AnyArray& tokens, const AnyArray& targets, std::int64_t threads) {
    const std::size_t workers = checked_threads(threads);
    const Batch batch = batch_of(self, tokens, targets);
    const std::size_t B = batch.targets.rows, T = batch.targets.columns, M = self.model->order() - 1;
    if (batch.targets.values.size() > kMaxAnswers / std::max<std::size_t>(M, 1)) throw std::bad_alloc();
    std::vector<std::uint8_t> lengths(B * T);
    std::vector<double> stored(B * T), weights(B * T * M);
    UninitializedBuffer<bool> is_stored(B * T * M);
    {
        const nb::gil_scoped_release free;
        for_rows(T > 0 ? B : 0, workers, [&](std::size_t row) {
            for (std::size_t t = 0; t < T; ++t) {
                const State state = self.model->after(batch.tokens.row(row).subspan(t + 1, M));
                const std::size_t at = row * T + t;
                BackoffTrace trace{0, 0, weights.data() + at * M, is_stored.data() + at * M};
                self.model->trace(state, static_cast<std::uint32_t>(batch.targets.row(row)[t]), trace);
                lengths[at] = trace.length;
                stored[at] = trace.stored;
            }
        });
    }
    auto owned = std::make_unique<UninitializedBuffer<bool>>(std::move(is_stored));
    bool* const data = owned->data();
    const nb::capsule owner(owned.get(),
                            [](void* p) noexcept { delete static_cast<UninitializedBuffer<bool>*>(p); });
    owned.release();
    return {to_numpy_array(std::move(lengths), {B, T}), to_numpy_array(std::move(stored), {B, T}),
            to_numpy_array(std::move(weights), {B, T, M}),
            nb::ndarray<nb::numpy, bool>(data, {B, T, M}, owner)};
}

std::tuple<nb::ndarray<nb::numpy, std::int32_t>, Doubles> top(const PyNgramModel& self,
                                                              const AnyArray& tokens, std::int64_t k) {
    const Words words = states_of(self, tokens);
    if (words.rows != 1) throw ArgumentError("tokens has " + std::to_string(words.rows) + " rows, not 1");
    const std::size_t count = checked_number(k, 0, std::numeric_limits<std::int32_t>::max(), "k");
    std::vector<Candidate> scores;
    {
        const nb::gil_scoped_release free;
        scores = self.model->top(self.model->after(words.row(0)), count);
    }
    std::vector<std::int32_t> ids;
    std::vector<double> log_probs;
    for (const Candidate& candidate : scores) {
        ids.push_back(static_cast<std::int32_t>(candidate.word));
        log_probs.push_back(candidate.log_prob);
    }
    const std::size_t size = scores.size();
    return {to_numpy_array(std::move(ids), {size}), to_numpy_array(std::move(log_probs), {size})};
}

nb::ndarray<nb::numpy, std::int32_t> sample(const PyNgramModel& self, const AnyArray& tokens,
                                            const AnyArray& uniform, std::int64_t threads) {
    const std::size_t workers = checked_threads(threads);
    const Words words = states_of(self, tokens);
    const auto at = checked_span<double>(uniform, "uniform", "float64");
    if (at.size() != words.rows) throw ArgumentError("tokens and uniform have different rows");
    for (const double u : at)
        if (!(u >= 0 && u < 1)) throw ArgumentError("uniform contains a value outside [0, 1)");
    std::vector<std::int32_t> drawn(words.rows);
    {
        const nb::gil_scoped_release free;
        for_rows(words.rows, workers, [&](std::size_t i) {
            drawn[i] = static_cast<std::int32_t>(self.model->draw(self.model->after(words.row(i)), at[i]));
        });
    }
    return to_numpy_array(std::move(drawn), {words.rows});
}

using Doubles = nb::ndarray<nb::numpy, double>;
using Longs = nb::ndarray<nb::numpy, std::int64_t>;
using Sums = std::tuple<Doubles, Longs, Longs>;

Sums for_python(SentenceScores scores) {
    const std::size_t S = scores.log_probs.size();
    return {to_numpy_array(std::move(scores.log_probs), {S}), to_numpy_array(std::move(scores.tokens), {S}),
            to_numpy_array(std::move(scores.unknowns), {S})};
}

Sums score_texts(const PyNgramModel& self, const nb::object& sentences, bool bos, bool eos,
                 std::int64_t threads, const std::optional<std::string>& placeholder) {
    const SentenceOptions options{bos, eos, checked_threads(threads), nullptr, Splitting::of(placeholder)};
    const TextViews texts(sentences);
    SentenceScores scores;
    {
        const nb::gil_scoped_release free;
        scores = score_sentences(*self.model, texts.views(), options);
    }
    return for_python(std::move(scores));
}

Sums score_file(const PyNgramModel& self, const std::filesystem::path& path, bool bos, bool eos,
                std::int64_t threads) {
    const SentenceOptions options{bos, eos, checked_threads(threads)};
    SentenceScores scores;
    {
        const nb::gil_scoped_release free;
        const std::string text = read_whole(path.string());
        scores = score_sentences(*self.model, split_text_lines(text), options);
    }
    return for_python(std::move(scores));
}

std::tuple<Doubles, Longs, Doubles> score_spelled(const PyNgramModel& self, const nb::object& sentences,
                                                  const Speller& speller, std::int64_t threads,
                                                  const std::optional<std::string>& placeholder) {
    const SentenceOptions options{true, true, checked_threads(threads), &speller, Splitting::of(placeholder)};
    const TextViews texts(sentences);
    SentenceScores scores;
    {
        const nb::gil_scoped_release free;
        scores = score_sentences(*self.model, texts.views(), options);
    }
    const std::size_t S = scores.log_probs.size();
    return {to_numpy_array(std::move(scores.log_probs), {S}), to_numpy_array(std::move(scores.tokens), {S}),
            to_numpy_array(std::move(scores.spellings), {S})};
}

std::tuple<nb::ndarray<nb::numpy, float>, nb::ndarray<nb::numpy, std::uint8_t>,
           nb::ndarray<nb::numpy, std::uint8_t>, Longs>
full_scores(const PyNgramModel& self, const nb::object& sentences, bool bos, bool eos, std::int64_t threads) {
    const SentenceOptions options{bos, eos, checked_threads(threads)};
    const TextViews texts(sentences);
    TokenScores scores;
    {
        const nb::gil_scoped_release free;
        scores = score_tokens(*self.model, texts.views(), options);
    }
    const std::size_t N = scores.log_probs.size(), S = scores.ends.size();
    return {to_numpy_array(std::move(scores.log_probs), {N}), to_numpy_array(std::move(scores.lengths), {N}),
            to_numpy_array(std::move(scores.unknown), {N}), to_numpy_array(std::move(scores.ends), {S})};
}

std::tuple<double, std::uint32_t, bool> advance(const PyNgramModel& self, const PyState& state,
                                                const nb::object& word, PyState& out) {
    const ModelMetadata& metadata = self.model->metadata();
    std::uint32_t number = metadata.unknown;
    bool is_unknown = true;
    if (PyLong_Check(word.ptr())) {
        number =
            checked_number(nb::cast<std::int64_t>(word), 0, std::int64_t{metadata.vocabulary} - 1, "word");
        is_unknown = number == metadata.unknown;
    } else {
        if (!self.model->names())
            throw ArgumentError("this model stores word ids only, without a vocabulary");
        const std::int64_t scores = self.model->names()->find(TextViews::view_of(word.ptr()));
        if (scores >= 0) number = static_cast<std::uint32_t>(scores);
        is_unknown = number == metadata.unknown;
    }
    State after;
    const StepResult answer = self.model->step(state.of(*self.model), number, after);
    out.set(after, *self.model);
    return {answer.log_prob, answer.length, is_unknown};
}

}  // namespace

void bind_query(NgramClass& bound) {
    bound
        .def("score", &score, nb::arg("tokens"), nb::arg("targets"), nb::arg("threads") = 1,
             "(B, n−1+T) words read and (B, T) targets -> (B, T) log p(target t | the n−1 words up to input "
             "t).")
        .def("score_lines", &score_lines, nb::arg("ids"), nb::arg("threads") = 1,
             "(N,) concatenated lines, each terminated by </s> -> (N,) log p of each word; lines start from "
             "<s>.")
        .def("step", &step, nb::arg("tokens"), nb::arg("threads") = 1,
             "(K, n−1) contexts -> (K, V) log p of every next word.")
        .def("depth", &depth, nb::arg("tokens"), nb::arg("targets"), nb::arg("threads") = 1,
             "For each target: length of the matched n-gram, its stored log p, (B, T, n−1) "
             "weights of "
             "the contexts backed off from, and whether any word is stored after each context.")
        .def("top", &top, nb::arg("tokens"), nb::arg("k"),
             "(1, n−1) context -> the k most probable next words and their log p, descending.")
        .def("sample", &sample, nb::arg("tokens"), nb::arg("uniform"), nb::arg("threads") = 1,
             "(K, n−1) contexts and (K,) uniform numbers in [0, 1) -> (K,) sampled words.")
        .def(
            "largest_deviation",
            [](const PyNgramModel& self, std::int64_t contexts) {
                const std::size_t most = checked_number(contexts, 1, 1 << 24, "contexts");
                const nb::gil_scoped_release free;
                return largest_deviation(*self.model, most);
            },
            nb::arg("contexts"),
            "The largest |Σ p(w | h) − 1| over samples of stored and of random contexts h.");
}

void bind_sentences(nb::module_& module, NgramClass& bound) {
    nb::class_<PyState>(module, "NgramState", "The context state of an n-gram model; an immutable value.")
        .def(nb::init<>())
        .def(
            "__eq__", [](const PyState& a, const PyState& b) { return a == b; }, nb::is_operator())
        .def("__hash__", [](const PyState& a) { return static_cast<std::int64_t>(a.hash() >> 2); })
        .def("copy", [](const PyState& a) { return a; });
    bound
        .def("score_sentences", &score_texts, nb::arg("sentences"), nb::arg("bos") = true,
             nb::arg("eos") = true, nb::arg("threads") = 1, nb::arg("placeholder") = nb::none(),
             "For each sentence: log p, number of tokens, number of unknown tokens. With a placeholder, "
             "punctuation is split first, and the placeholder is one token.")
        .def("score_file", &score_file, nb::arg("path"), nb::arg("bos") = true, nb::arg("eos") = true,
             nb::arg("threads") = 1, "The same for each line of a file.")
        .def("score_spelled", &score_spelled, nb::arg("sentences"), nb::arg("speller"),
             nb::arg("threads") = 1, nb::arg("placeholder") = nb::none(),
             "For each sentence: log p, number of tokens, and log p of the spelling of its unknown words.")
        .def("full_scores", &full_scores, nb::arg("sentences"), nb::arg("bos") = true, nb::arg("eos") = true,
             nb::arg("threads") = 1,
             "For each token: log p, length of the matched n-gram, and 1 if unknown; and the end of "
             "each "
             "sentence.")
        .def("begin_state",
             [](const PyNgramModel& self) {
                 PyState state;
                 state.set(self.model->begin(), *self.model);
                 return state;
             })
        .def("null_state", [](const PyNgramModel&) { return PyState{}; })
        .def("advance", &advance, nb::arg("state"), nb::arg("word"), nb::arg("out"),
             "Return log p of a word (text or id), the length of the matched n-gram, and "
             "whether it "
             "is unknown; `out` is set to the next state.");
}

}  // namespace chainrule
