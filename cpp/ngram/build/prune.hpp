// Removal of the rows below a count cut-off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// For each row of one order 1 if it is kept, 0 if not; empty if all are kept.
using KeptRows = UninitializedBuffer<std::uint8_t>;

// Keeps rows with a count above the cut-off; all rows if it is 0.
KeptRows rows_above_cut_off(const UninitializedBuffer<std::uint32_t>& count, std::uint32_t cut_off,
                            std::size_t threads);

// Returns `level` with the kept rows only; `contexts` are the rows kept one order down. A removed context has
// no kept extensions.
TableLevel keep_rows(TableLevel level, const KeptRows& contexts, const KeptRows& rows, std::size_t threads);

// Splits contexts into ranges with about the same number of n-grams: the first context of each range, and the
// end.
std::vector<std::size_t> balanced_ranges(const UninitializedBuffer<std::uint32_t>& first,
                                         std::size_t threads);

}  // namespace chainrule
