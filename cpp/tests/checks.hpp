// Plain checks: one that fails prints where it stands, and the program returns 1.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <source_location>
#include <string>
#include <system_error>

#include "base/error.hpp"

namespace chainrule::tests {

inline int checked = 0;
inline int failed = 0;

using Where = std::source_location;

inline void check(bool is_so, const std::string& what, const Where& where = Where::current()) {
    ++checked;
    if (is_so) return;
    ++failed;
    std::fprintf(stderr, "%s:%u: %s\n", where.file_name(), static_cast<unsigned>(where.line()), what.c_str());
}

inline void check_close(double found, double wanted, double within, const std::string& what,
                        const Where& where = Where::current()) {
    const bool is_close = std::abs(found - wanted) <= within;
    check(is_close, what + ": " + std::to_string(found) + " is not " + std::to_string(wanted), where);
}

// `call` throws an Error whose message holds `part`.
template <class Call>
void check_fails(Call call, const std::string& part, const Where& where = Where::current()) {
    try {
        call();
        check(false, "nothing was thrown where '" + part + "' was to be", where);
    } catch (const Error& error) {
        const std::string what = error.what();
        check(what.find(part) != std::string::npos, "'" + what + "' does not say '" + part + "'", where);
    }
}

// A file name that is free, and whose file is gone at the end.
class Scratch {
  public:
    Scratch() {
        static int result = 0;
        const auto address = std::to_string(reinterpret_cast<std::uintptr_t>(&result));
        path_ = std::filesystem::temp_directory_path() /
                ("chainrule-" + address + "-" + std::to_string(result++));
    }
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    std::string name() const { return path_.string(); }

  private:
    std::filesystem::path path_;
};

void test_arpa();
void test_glove();
void test_kernels();
void test_ngram();
void test_ngram_external();
void test_ngram_fast();
void test_ngram_file();
void test_ngram_names();
void test_ngram_quantize();
void test_ngram_query();
void test_ngram_levels();
void test_ngram_small();
void test_noise();
void test_text();
void test_punctuation();
void test_speller();
void test_threads();
void test_word2vec();
void test_words();

}  // namespace chainrule::tests
