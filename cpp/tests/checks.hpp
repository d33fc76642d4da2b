// Minimal test assertions: a failed check prints its source location, and the program returns 1.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <source_location>
#include <string>
#include <system_error>

#include "base/error.hpp"

namespace chainrule::tests {

inline int checked = 0;
inline int failed = 0;

using Where = std::source_location;

inline void check(bool is_true, const std::string& what, const Where& where = Where::current()) {
    ++checked;
    if (is_true) return;
    ++failed;
    std::fprintf(stderr, "%s:%u: %s\n", where.file_name(), static_cast<unsigned>(where.line()), what.c_str());
}

inline void check_close(double actual, double expected, double within, const std::string& what,
                        const Where& where = Where::current()) {
    const bool is_close = std::abs(actual - expected) <= within;
    check(is_close, what + ": " + std::to_string(actual) + " is not " + std::to_string(expected), where);
}

// Checks that `call` throws a `Kind` whose message contains `part`.
template <class Kind = Error, class Call>
void check_fails(Call call, const std::string& part, const Where& where = Where::current()) {
    try {
        call();
        check(false, "no exception was thrown; expected '" + part + "'", where);
    } catch (const Error& error) {
        const std::string what = error.what();
        check(dynamic_cast<const Kind*>(&error) != nullptr, "'" + what + "' is of another class", where);
        check(what.find(part) != std::string::npos, "'" + what + "' does not contain '" + part + "'", where);
    }
}

// A temporary file name; the destructor removes the file.
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

// Registers a test function: `const Test test("arpa", test_arpa);` at namespace scope.
struct Test {
    Test(const char* name, void (*run)()) { all().emplace(name, run); }

    // Sorted by name, so that the order does not depend on the linker.
    static std::map<std::string, void (*)()>& all() {
        static std::map<std::string, void (*)()> tests;
        return tests;
    }
};

}  // namespace chainrule::tests
