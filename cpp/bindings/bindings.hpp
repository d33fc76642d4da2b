// The parts of the module `chainrule._core`; only files named bindings… know Python.
#pragma once

#include <nanobind/nanobind.h>

namespace chainrule {

void bind_word2vec(nanobind::module_& module);      // words, word2vec, the kernels alone
void bind_glove(nanobind::module_& module);         // co-occurrences, GloVe
void bind_ngram(nanobind::module_& module);         // n-gram counts, modified Kneser–Ney
void bind_ngram_model(nanobind::module_& module);   // model files and what is asked of them
void bind_kenlm(nanobind::module_& module);         // the same by the names of the kenlm module
void bind_ngram_memory(nanobind::module_& module);  // training within a limit of memory
void bind_arpa(nanobind::module_& module);          // ARPA files
void bind_text(nanobind::module_& module);          // plain text to word numbers
void bind_speller(nanobind::module_& module);       // how unknown words are written

}  // namespace chainrule
