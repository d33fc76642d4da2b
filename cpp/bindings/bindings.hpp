// The parts of the module `chainrule._core`; only files named bindings… know Python.
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

// Something that several threads of Python may hold: one call at a time, others run meanwhile.

template <class T>
class OneAtATime {
  public:
    explicit OneAtATime(std::unique_ptr<T> kept) : kept_(std::move(kept)) {}

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
