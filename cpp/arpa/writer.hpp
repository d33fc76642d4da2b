// Writes the rows of a model as an ARPA file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "arpa/reader.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

struct ArpaOutput {
    std::function<void(std::string_view)> write;  // receives the text in pieces
    ArpaProgress progress;
    std::uint32_t left_out = 0xFFFFFFFF;  // n-grams with this word are not written
    std::size_t threads = 1;
};

// The output does not depend on the number of threads. Numbers are read back as the same floats, except log10
// values of −99 and below. If there are higher orders, every 1-gram has a back-off weight, also 0, because
// some readers require it; longer n-grams have one if it is not 0.
void write_arpa(const Rows& rows, const std::vector<std::string>& names, const ArpaOutput& out);

}  // namespace chainrule
