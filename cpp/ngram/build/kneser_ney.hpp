// Interpolated modified Kneser–Ney estimation.
//
// p(w | h) = max(c − D(c), 0) / c(h) + γ(h) p(w | h′) with h′ the shortened context and γ(h) = (D1 N1(h) + D2
// N2(h) + D3 N3+(h)) / c(h). c are continuation counts below the highest order, N_r(h) is the number of words
// that follow h with c = r. Counts are summed as integers, so the result does not depend on the order of
// additions; all else is in double, rounded to float once, after the logarithm. N-grams removed by a cut-off
// give their whole counts to γ(h).
#pragma once

#include <vector>

#include "base/buffer.hpp"
#include "ngram/build/count.hpp"
#include "ngram/build/discounts.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

struct KneserNey {
    std::vector<TableLevel> levels;
    std::vector<Discounts> discounts;  // by order; `source` shows where defaults were used

    std::size_t order() const { return levels.size(); }
};

inline constexpr std::uint32_t kEveryWord = 0xFFFFFFFF;

// `unknown` is the id of a word without probability (<unk> of a closed vocabulary), if any. The counts are
// consumed: probabilities overwrite them in memory. `cut_offs`: one per order or none, see check_cut_offs.
KneserNey estimate_kneser_ney(Counts counts, std::size_t threads, std::uint32_t unknown = kEveryWord,
                              std::vector<std::uint32_t> cut_offs = {});

}  // namespace chainrule
