// All tests of the core, in one program.
#include "checks.hpp"

int main() {
    using namespace chainrule::tests;
    test_words();
    test_noise();
    test_threads();
    test_kernels();
    test_word2vec();
    test_glove();
    test_ngram();
    test_ngram_file();
    test_ngram_names();
    test_ngram_fast();
    test_ngram_quantize();
    test_ngram_small();
    test_ngram_query();
    test_ngram_levels();
    test_ngram_external();
    test_arpa();
    test_text();
    test_punctuation();
    test_speller();
    std::printf("%d checks, %d failed\n", checked, failed);
    return failed ? 1 : 0;
}
