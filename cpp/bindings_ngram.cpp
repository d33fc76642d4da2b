// N-gram counts and modified Kneser–Ney, for Python.
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "bindings_arrays.hpp"
#include "ngram_counting.hpp"
#include "ngram_kneser_ney.hpp"
#include "ngram_text.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

constexpr std::int64_t kMostOrder = 1000, kMostThreads = 65536;

// A NumPy array that owns this memory; nothing is copied.
template <class T>
nb::ndarray<nb::numpy, T> handed_over(Array<T> values) {
    auto kept = std::make_unique<Array<T>>(std::move(values));
    T* data = kept->data();
    const std::size_t size = kept->size();
    const nb::capsule owner(kept.get(),
                            [](void* p) noexcept { std::unique_ptr<Array<T>>(static_cast<Array<T>*>(p)); });
    kept.release();
    return nb::ndarray<nb::numpy, T>(data, {size}, owner);
}

template <class T>
Array<T> copy(const Array<T>& values) {
    Array<T> made(values.size());
    std::copy(values.begin(), values.end(), made.begin());
    return made;
}

template <class T>
Array<T> zeros(std::size_t size) {
    Array<T> made(size);
    std::fill(made.begin(), made.end(), T{0});
    return made;
}

// The context of each row, from where each context's rows begin.
Array<std::uint32_t> contexts_of(const Array<std::uint32_t>& first) {
    const std::size_t contexts = first.size() - 1;
    Array<std::uint32_t> made(first[contexts]);
    for (std::size_t h = 0; h < contexts; ++h) {
        std::fill(made.begin() + first[h], made.begin() + first[h + 1], static_cast<std::uint32_t>(h));
    }
    return made;
}

// What the estimate uses up of one order, kept for Python.
struct Kept {
    Array<std::uint32_t> suffix, count;
};

struct Made {
    KneserNey model;
    std::vector<Kept> kept;
};

Made make(Tokens tokens, std::size_t order, std::size_t threads, std::uint32_t unknown) {
    Counts counts = count_ngrams(std::move(tokens), order, threads);
    Made made;
    for (const Level& level : counts.levels) {
        const bool is_first = made.kept.empty();
        made.kept.push_back(
            {is_first ? zeros<std::uint32_t>(level.size()) : copy(level.suffix), copy(level.count)});
    }
    made.model = estimate_kneser_ney(std::move(counts), threads, unknown);
    TableLevel& top = made.model.levels.back();
    top.log_backoff = zeros<float>(top.log_prob.size());  // never a context
    for (TableLevel& level : made.model.levels) level.first = contexts_of(level.first);
    return made;
}

std::uint32_t number(std::int64_t value, std::int64_t least, std::int64_t most, const char* name) {
    if (value < least || value > most) {
        throw Failure(std::string(name) + " is " + std::to_string(value) + "; choose a number from " +
                      std::to_string(least) + " to " + std::to_string(most));
    }
    return static_cast<std::uint32_t>(value);
}

// −1: every word but <s> has a probability.
std::uint32_t without_probability(std::int64_t unk, std::int64_t vocabulary, std::int64_t bos,
                                  std::int64_t eos) {
    if (unk == -1) return kEveryWord;
    if (unk == bos || unk == eos) throw Failure("<unk> must be another number than <s> and </s>");
    return number(unk, 0, vocabulary - 1, "unk");
}

std::tuple<nb::list, nb::list, nb::list> kneser_ney(const AnyArray& ids, std::int64_t order,
                                                    std::int64_t vocabulary, std::int64_t bos,
                                                    std::int64_t eos, std::int64_t unk, bool is_line,
                                                    std::int64_t threads) {
    const auto text = span_of<std::int32_t>(ids, "ids", "int32");
    const std::uint32_t V =
        number(vocabulary, 2, std::numeric_limits<std::int32_t>::max(), "vocabulary_size");
    const std::uint32_t begin = number(bos, 0, vocabulary - 1, "bos");
    const std::uint32_t end = number(eos, 0, vocabulary - 1, "eos");
    const std::uint32_t unknown = without_probability(unk, vocabulary, bos, eos);
    const std::uint32_t n = number(order, 1, kMostOrder, "order");
    const std::uint32_t workers = number(threads, 1, kMostThreads, "threads");
    Tokens tokens = take_ids(text, V, begin, end, !is_line);  // nobody changes the array meanwhile
    Made made = [&] {
        const nb::gil_scoped_release free;
        return make(std::move(tokens), n, workers, unknown);
    }();
    nb::list levels, discounts, fell_back;
    for (std::size_t k = 0; k < made.model.order(); ++k) {
        TableLevel& level = made.model.levels[k];
        nb::dict arrays;
        arrays["context"] = handed_over(std::move(level.first));
        arrays["word"] = handed_over(std::move(level.word));
        arrays["suffix"] = handed_over(std::move(made.kept[k].suffix));
        arrays["count"] = handed_over(std::move(made.kept[k].count));
        arrays["log_prob"] = handed_over(std::move(level.log_prob));
        arrays["log_backoff"] = handed_over(std::move(level.log_backoff));
        levels.append(arrays);
        const Discounts& D = made.model.discounts[k];
        discounts.append(nb::make_tuple(D.of[1], D.of[2], D.of[3]));
        fell_back.append(nb::bool_(D.source != DiscountSource::counts));
    }
    return {levels, discounts, fell_back};
}

}  // namespace

void bind_ngram(nb::module_& module) {
    module.def(
        "ngram_kneser_ney", &kneser_ney, nb::arg("ids"), nb::arg("order"), nb::arg("vocabulary_size"),
        nb::arg("bos"), nb::arg("eos"), nb::arg("unk"), nb::arg("is_line"), nb::arg("threads"),
        "Modified Kneser–Ney of word numbers, `eos` after each line: by order the arrays of n-grams, "
        "D1, D2, D3+, and whether they are the fall-back. `unk` is a word without probability, or -1.");
}

}  // namespace chainrule
