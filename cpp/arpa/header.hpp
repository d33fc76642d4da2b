// The head of an ARPA file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arpa/lines.hpp"

namespace chainrule {

// How many n-grams of an order the header promises, and in which line.
struct ArpaClaim {
    std::uint64_t count, line;
};

struct ArpaHeader {
    std::vector<ArpaClaim> claims;  // [k] is of order k + 1
    std::string mark;               // the line that ended it: \1-grams:
};

ArpaHeader read_arpa_header(ArpaLines& lines);

}  // namespace chainrule
