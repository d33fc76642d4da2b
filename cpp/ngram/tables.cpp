#include "ngram/tables.hpp"

#include <algorithm>

namespace chainrule {

void TableRows::read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word,
                     float* log_prob, float* log_backoff, std::uint32_t* first) const {
    const TableLevel& level = levels_[n - 1];
    if (word) std::copy_n(level.word.begin() + from, count, word);
    if (log_prob) std::copy_n(level.log_prob.begin() + from, count, log_prob);
    if (log_backoff && level.log_backoff.size()) {
        std::copy_n(level.log_backoff.begin() + from, count, log_backoff);
    } else if (log_backoff) {
        std::fill_n(log_backoff, count, 0.0F);
    }
    if (first && n < levels_.size()) std::copy_n(levels_[n].first.begin() + from, count + 1, first);
}

}  // namespace chainrule
