// N-grams whose contexts an ARPA file leaves out, as pruning does with some tools: the contexts are added,
// each with the probability that backing off gives and the weight 1.
#pragma once

#include <cstdint>
#include <vector>

#include "arpa/levels.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// The orphans of one order, as listed.
struct OrphanOrder {
    struct Values {
        float log_prob, log_backoff;
        std::uint64_t line;
    };
    std::vector<std::uint32_t> ids;  // n by n
    std::vector<Values> values;
};

OrphanOrder take_orphans(ListedOrder& listed, std::size_t n);

// Puts the orphans of all orders ([k] is of order k + 1) and what they need into the tables, whose rows are
// numbered anew. Throws ArpaFault where an orphan is there twice.
void adopt_orphans(std::vector<TableLevel>& levels, const std::vector<OrphanOrder>& orphans,
                   std::uint32_t begin);

}  // namespace chainrule
