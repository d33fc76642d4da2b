// Rows of a model -> an ARPA file.
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
    std::function<void(std::string_view)> write;  // takes the text, piece by piece
    ArpaProgress progress;
    std::uint32_t left_out = 0xFFFFFFFF;  // n-grams with this word are not written
    std::size_t threads = 1;
};

// The text is the same whatever the threads. Each number is read back as the float it was, but for log10 of
// −99 and below. 1-grams always have a back-off weight where there are longer ones, 0 too, since some readers
// take no others; longer n-grams have one where it is not 0.
void write_arpa(const Rows& rows, const std::vector<std::string>& names, const ArpaOutput& out);

}  // namespace chainrule
