// What the bindings share: registration functions of `chainrule._core`, one per part, views of NumPy arrays,
// and objects locked for Python threads.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "text/vocabulary.hpp"

namespace chainrule {

void bind_vectors(nanobind::module_& module);       // word counts, word2vec, kernels, co-occurrences, GloVe
void bind_ngram(nanobind::module_& module);         // n-gram counts, modified Kneser–Ney
void bind_ngram_model(nanobind::module_& module);   // model files and queries
void bind_kenlm(nanobind::module_& module);         // the interface of the kenlm module
void bind_ngram_memory(nanobind::module_& module);  // training with a memory limit
void bind_ngram_partition(nanobind::module_& module);  // training in partitions
void bind_arpa(nanobind::module_& module);             // ARPA files
void bind_text_reader(nanobind::module_& module);      // texts in pieces of lines
void bind_text(nanobind::module_& module);             // encoding of texts as word ids
void bind_duplicates(nanobind::module_& module);       // hashes and near duplicates of documents
void bind_speller(nanobind::module_& module);          // character model for unknown words

struct PyVocabulary {
    std::shared_ptr<const WordVocabulary> vocabulary;
};

// The counted words of a text, and the object that `words` reads.
struct PyCountedWords {
    std::shared_ptr<const void> owner;
    CountedWords words;
};

// Validated views of NumPy arrays, and NumPy arrays that own C++ memory.

using AnyArray = nanobind::ndarray<nanobind::ro>;

// Returns the array `name` as a span after checking type, contiguity and number of axes.
template <class T>
std::span<const T> checked_span(const AnyArray& array, const char* name, const char* type,
                                std::size_t ndim = 1) {
    const std::string what(name);
    if (array.device_type() != nanobind::device::cpu::value)
        throw ArgumentError(what + " must be in main memory");
    if (array.dtype() != nanobind::dtype<T>()) throw ArgumentError(what + " must be an array of " + type);
    if (array.ndim() != ndim) {
        throw ArgumentError(what + " has " + std::to_string(array.ndim()) + " axes, not " +
                            std::to_string(ndim));
    }
    std::int64_t step = 1;
    for (std::size_t i = ndim; i-- > 0; step *= static_cast<std::int64_t>(array.shape(i))) {
        if (array.shape(i) > 1 && array.size() > 0 && array.stride(i) != step) {
            throw ArgumentError(what + " must lie in a row in memory; use numpy.ascontiguousarray");
        }
    }
    return {static_cast<const T*>(array.data()), array.size()};
}

// A NumPy array that owns these values, a vector or an UninitializedBuffer; nothing is copied.
template <class Values, class T = std::remove_pointer_t<decltype(std::declval<Values&>().data())>>
nanobind::ndarray<nanobind::numpy, T> to_numpy_array(Values values,
                                                     std::initializer_list<std::size_t> shape) {
    auto owned = std::make_unique<Values>(std::move(values));
    T* data = owned->data();
    const nanobind::capsule owner(owned.get(),
                                  [](void* p) noexcept { std::unique_ptr<Values>(static_cast<Values*>(p)); });
    owned.release();
    return nanobind::ndarray<nanobind::numpy, T>(data, shape, owner);
}

// An object shared by Python threads: calls are serialised by a mutex, with the GIL released.

template <class T>
class Locked {
  public:
    explicit Locked(std::unique_ptr<T> value) : value_(std::move(value)) {}

    template <class Use>
    auto use(Use use) {
        const nanobind::gil_scoped_release free;
        const std::lock_guard lock(mutex_);
        return use(*value_);
    }

  private:
    std::unique_ptr<T> value_;
    std::mutex mutex_;
};

}  // namespace chainrule
