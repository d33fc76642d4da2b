// Runs all registered tests, or those named as arguments.
#include <algorithm>
#include <span>
#include <string_view>

#include "checks.hpp"

int main(int count, char** values) {
    using namespace chainrule::tests;
    const std::span<char*> names(values + 1, values + count);
    for (const auto& [name, run] : Test::all()) {
        const bool is_named = std::ranges::find(names, std::string_view(name)) != names.end();
        if (names.empty() || is_named) run();
    }
    std::printf("%d checks, %d failed\n", checked, failed);
    return failed ? 1 : 0;
}
