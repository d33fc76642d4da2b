// Interpolated modified Kneser–Ney over counted tables: smoothing.py and estimate.py.
//
// p(w | h) = max(c − D(c), 0) / c(h) + γ(h) p(w | shorter h), γ(h) = (D1 N1(h) + D2 N2(h) + D3 N3+(h)) /
// c(h), c being counts of continuations below the highest order and N_r(h) how many words follow h with c =
// r. The sums are of integers, so that no order of adding shows in the result; all else is in double, and the
// logarithms are rounded to float once. N-grams that a cut-off leaves out keep nothing: their whole counts go
// into γ(h), beside the discounts of those that stay.
#pragma once

#include <vector>

#include "base/buffer.hpp"
#include "ngram/build/count.hpp"
#include "ngram/build/discounts.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

struct KneserNey {
    std::vector<TableLevel> levels;
    std::vector<Discounts> discounts;  // by order; whoever shows them says where a fall-back was taken

    std::size_t order() const { return levels.size(); }
};

inline constexpr std::uint32_t kEveryWord = 0xFFFFFFFF;

// `unknown` is a word without probability, if any: that of a closed vocabulary. The counts are used up, since
// probabilities are written into the memory of the counts they come from. `cut_offs`, one for each order or
// none at all: n-grams that stand in the text this often or less are left out (ngram/build/discounting.hpp).
KneserNey estimate_kneser_ney(Counts counts, std::size_t threads, std::uint32_t unknown = kEveryWord,
                              std::vector<std::uint32_t> cut_offs = {});

}  // namespace chainrule
