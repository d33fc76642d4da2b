#include "ngram/build/external_rows.hpp"

#include <algorithm>

namespace chainrule {

void SpilledRows::read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word,
                       float* log_prob, float* log_backoff, std::uint32_t* first) const {
    const SpilledLevel& level = levels_[n - 1];
    const bool is_top = n == levels_.size();
    if (word) level.word.read(from, word, count);
    if (log_prob) level.log_prob.read(from, log_prob, count);
    if (log_backoff && is_top) std::fill_n(log_backoff, count, 0.0F);
    if (log_backoff && !is_top) level.log_backoff.read(from, log_backoff, count);
    if (first && !is_top) level.first.read(from, first, count + 1);
}

}  // namespace chainrule
