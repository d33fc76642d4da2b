// The parts of the module `chainrule._core`; only files named bindings… know Python.
#pragma once

#include <nanobind/nanobind.h>

namespace chainrule {

void bind_word2vec(nanobind::module_& module);  // words, word2vec, the kernels alone
void bind_glove(nanobind::module_& module);     // co-occurrences, GloVe
void bind_ngram(nanobind::module_& module);     // n-gram counts, modified Kneser–Ney

}  // namespace chainrule
