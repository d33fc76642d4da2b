// Registration functions of `chainrule._core`, one per part.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>

namespace chainrule {

void bind_vectors(nanobind::module_& module);       // word counts, word2vec, kernels, co-occurrences, GloVe
void bind_ngram(nanobind::module_& module);         // n-gram counts, modified Kneser–Ney
void bind_ngram_model(nanobind::module_& module);   // model files and queries
void bind_kenlm(nanobind::module_& module);         // the interface of the kenlm module
void bind_ngram_memory(nanobind::module_& module);  // training with a memory limit
void bind_arpa(nanobind::module_& module);          // ARPA files
void bind_text(nanobind::module_& module);          // encoding of plain text as word ids
void bind_speller(nanobind::module_& module);       // character model for unknown words

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
