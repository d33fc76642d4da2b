// Registration functions of `chainrule._core`, one per part.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>

namespace chainrule {

void bind_vectors(nanobind::module_& module);       // word counts, word2vec, kernels, co-occurrences, GloVe
void bind_ngram(nanobind::module_& module);         // n-gram counts, modified Kneser–Ney
void bind_ngram_model(nanobind::module_& module);   // model files and what is asked of them
void bind_kenlm(nanobind::module_& module);         // the same by the names of the kenlm module
void bind_ngram_memory(nanobind::module_& module);  // training within a limit of memory
void bind_arpa(nanobind::module_& module);          // ARPA files
void bind_text(nanobind::module_& module);          // plain text to word numbers
void bind_speller(nanobind::module_& module);       // how unknown words are written

// An object shared by Python threads: calls are serialised by a mutex, with the GIL released.

template <class T>
class Locked {
  public:
    explicit Locked(std::unique_ptr<T> kept) : kept_(std::move(kept)) {}

    template <class Use>
    auto use(Use use) {
        const nanobind::gil_scoped_release free;
        const std::lock_guard lock(mutex_);
        return use(*kept_);
    }

  private:
    std::unique_ptr<T> kept_;
    std::mutex mutex_;
};

}  // namespace chainrule
