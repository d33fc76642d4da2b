// Tables without the rows that a cut-off leaves out, the rest numbered anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// Of each row of one order whether it is kept, 1 or 0; empty where all are.
using KeptRows = Array<std::uint8_t>;

// Kept are the rows with a count above the cut-off; all of them where that is 0.
KeptRows above_cut_off(const Array<std::uint32_t>& count, std::uint32_t cut_off, std::size_t threads);

// `level` with the rows of `rows` alone; `contexts` are the rows kept one order down. A context that is left
// out has no row that is kept.
TableLevel keep_rows(TableLevel level, const KeptRows& contexts, const KeptRows& rows, std::size_t threads);

// Contexts in ranges with about as many n-grams each: where part t begins, and at the end where the last
// ends.
std::vector<std::size_t> share_out(const Array<std::uint32_t>& first, std::size_t threads);

}  // namespace chainrule
