// Shared by the n-gram bindings: the Python objects and the validation of arguments.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "bindings/bindings.hpp"
#include "ngram/build/discounts.hpp"
#include "ngram/query/model.hpp"

namespace chainrule {

struct PyNgramModel {
    std::shared_ptr<const Model> model;
};

// A state and the model it belongs to.
struct PyState {
    State state;
    std::uint64_t model = 0;  // Model::identity(); 0 for the empty state, which is valid for every model

    void set(const State& from, const Model& of) {
        state.copy_from(from);
        own(of);
    }
    void own(const Model& of) { model = state.stored || state.reach ? of.identity() : 0; }
    void clear() { state.stored = state.reach = model = 0; }
    // Throws Error if the state belongs to another model.
    const State& of(const Model& queried) const {
        if (model != 0 && model != queried.identity())
            throw ArgumentError("the state comes from another model; begin a new one with this model");
        return state;
    }
    bool operator==(const PyState& other) const { return model == other.model && state == other.state; }
    std::uint64_t hash() const { return state.hash() ^ model * 0x9E3779B97F4A7C15ULL; }
};

using NgramClass = nanobind::class_<PyNgramModel>;

void bind_query(NgramClass& bound);  // batched scoring, next-word distributions
void bind_sentences(nanobind::module_& module, NgramClass& bound);  // text, states
void bind_shards(NgramClass& bound);                                // splitting, joining, prefix lookups

inline std::uint32_t checked_number(std::int64_t value, std::int64_t least, std::int64_t most,
                                    const char* name) {
    if (value < least || value > most) {
        throw ArgumentError(std::string(name) + " is " + std::to_string(value) + "; choose a number from " +
                            std::to_string(least) + " to " + std::to_string(most));
    }
    return static_cast<std::uint32_t>(value);
}

inline std::size_t checked_threads(std::int64_t threads) {
    return checked_number(threads, 1, 65536, "threads");
}

inline LayoutChoice layout_choice(std::string_view layout, std::int64_t bits) {
    if (layout != "fast" && layout != "small") {
        throw ArgumentError("layout is '" + std::string(layout) + "'; choose fast or small");
    }
    if (bits != 0 && bits != 8) throw ArgumentError("bits is " + std::to_string(bits) + "; choose 0 or 8");
    if (bits != 0 && layout == "fast") throw ArgumentError("8 bits need the layout small");
    return {layout == "fast" ? LayoutKind::fast : LayoutKind::small, static_cast<std::uint32_t>(bits)};
}

// Model metadata from Python arguments.
inline ModelMetadata model_metadata(std::int64_t vocabulary, std::int64_t bos, std::int64_t eos,
                                    std::int64_t unk, bool is_closed, bool is_stream, bool is_normalized,
                                    double log_missing) {
    ModelMetadata metadata;
    metadata.vocabulary =
        checked_number(vocabulary, 2, std::numeric_limits<std::int32_t>::max(), "vocabulary_size");
    metadata.begin = checked_number(bos, 0, vocabulary - 1, "bos");
    metadata.end = checked_number(eos, 0, vocabulary - 1, "eos");
    if (metadata.begin == metadata.end) throw ArgumentError("<s> and </s> must have different ids");
    if (unk != -1) {
        metadata.unknown = checked_number(unk, 0, vocabulary - 1, "unk");
        if (unk == bos || unk == eos)
            throw ArgumentError("the id of <unk> must differ from those of <s> and </s>");
    }
    metadata.is_closed = is_closed && unk != -1;
    metadata.is_stream = is_stream;
    metadata.is_normalized = is_normalized;
    metadata.log_missing = static_cast<float>(log_missing);
    return metadata;
}

// Views of Python strings without copies; `kept_` keeps the objects alive.
class TextViews {
  public:
    explicit TextViews(const nanobind::object& texts)
        : tuple_(nanobind::steal(PySequence_Tuple(texts.ptr()))) {
        if (!tuple_.is_valid()) nanobind::raise_python_error();
        const Py_ssize_t size = PyTuple_GET_SIZE(tuple_.ptr());
        views_.reserve(static_cast<std::size_t>(size));
        for (Py_ssize_t i = 0; i < size; ++i) views_.push_back(view_of(PyTuple_GET_ITEM(tuple_.ptr(), i)));
    }
    std::span<const std::string_view> views() const { return views_; }

    // UTF-8 of a str, or bytes as they are.
    static std::string_view view_of(PyObject* text) {
        if (PyBytes_Check(text)) {
            return {PyBytes_AS_STRING(text), static_cast<std::size_t>(PyBytes_GET_SIZE(text))};
        }
        Py_ssize_t size = 0;
        const char* const data = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &size) : nullptr;
        if (!data && PyErr_Occurred()) nanobind::raise_python_error();
        if (!data) throw nanobind::type_error("a text must be str or bytes");
        return {data, static_cast<std::size_t>(size)};
    }

  private:
    nanobind::object tuple_;
    std::vector<std::string_view> views_;
};

// The names of a WordVocabulary, or a copy of a sequence of words; null for None.
inline std::shared_ptr<const WordList> word_list(const nanobind::object& names) {
    if (names.is_none()) return nullptr;
    if (nanobind::isinstance<PyVocabulary>(names))
        return nanobind::cast<const PyVocabulary&>(names).vocabulary->names();
    const nanobind::object sequence = nanobind::steal(PySequence_Fast(names.ptr(), "names must be a list"));
    if (!sequence.is_valid()) nanobind::raise_python_error();
    auto list = std::make_shared<WordList>();
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.ptr()); ++i)
        list->add(TextViews::view_of(PySequence_Fast_GET_ITEM(sequence.ptr(), i)));
    return list;
}

// A NumPy array that owns this memory; nothing is copied.
template <class T>
nanobind::ndarray<nanobind::numpy, T> to_numpy(UninitializedBuffer<T> values) {
    auto owned = std::make_unique<UninitializedBuffer<T>>(std::move(values));
    T* data = owned->data();
    const std::size_t size = owned->size();
    const nanobind::capsule owner(owned.get(), [](void* p) noexcept {
        std::unique_ptr<UninitializedBuffer<T>>(static_cast<UninitializedBuffer<T>*>(p));
    });
    owned.release();
    return nanobind::ndarray<nanobind::numpy, T>(data, {size}, owner);
}

// Why default discounts are used, worded as in smoothing.py; "" if they were estimated.
inline std::string fallback_reason(const Discounts& discounts) {
    char text[160];
    const auto& n = discounts.n;
    const auto& D = discounts.estimated;
    const auto u = [](std::uint64_t x) { return static_cast<unsigned long long>(x); };
    switch (discounts.source) {
        case DiscountSource::counts:
            return "";
        case DiscountSource::missing_counts:
            std::snprintf(text, sizeof text, "n1=%llu, n2=%llu, n3=%llu, n4=%llu", u(n[1]), u(n[2]), u(n[3]),
                          u(n[4]));
            return text;
        case DiscountSource::out_of_range:
            break;
    }
    std::snprintf(text, sizeof text, "D1, D2, D3+ come out as %.3g, %.3g, %.3g", D[1], D[2], D[3]);
    return text;
}

}  // namespace chainrule
