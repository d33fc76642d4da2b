#include "ngram/build/prune.hpp"

#include <algorithm>
#include <vector>

#include "base/parallel.hpp"

namespace chainrule {

std::vector<std::size_t> balanced_ranges(const UninitializedBuffer<std::uint32_t>& first,
                                         std::size_t threads) {
    std::vector<std::size_t> bounds{0};
    const std::size_t contexts = first.size() - 1;
    for (std::size_t t = 1; t < threads; ++t) {
        const std::size_t target = part_begin(first[contexts], t, threads);
        const std::uint32_t* at =
            std::lower_bound(first.begin() + bounds.back(), first.begin() + contexts, target);
        bounds.push_back(static_cast<std::size_t>(at - first.begin()));
    }
    bounds.push_back(contexts);
    return bounds;
}

KeptRows rows_above_cut_off(const UninitializedBuffer<std::uint32_t>& count, std::uint32_t cut_off,
                            std::size_t threads) {
    if (cut_off == 0) return {};
    KeptRows keep(count.size());
    parallel_for(threads, [&](std::size_t t) {
        const std::size_t to = part_begin(count.size(), t + 1, threads);
        for (std::size_t i = part_begin(count.size(), t, threads); i < to; ++i) keep[i] = count[i] > cut_off;
    });
    return keep;
}

TableLevel keep_rows(TableLevel level, const KeptRows& contexts, const KeptRows& rows, std::size_t threads) {
    const auto is_in = [](const KeptRows& keep, std::size_t i) { return keep.size() == 0 || keep[i] != 0; };
    const std::vector<std::size_t> bounds = balanced_ranges(level.first, threads);
    struct Offset {
        std::size_t context = 0, row = 0;
    };
    std::vector<Offset> offsets(threads + 1);  // start of each thread's part in the new tables
    parallel_for(threads, [&](std::size_t t) {
        Offset part_size;
        for (std::size_t h = bounds[t]; h < bounds[t + 1]; ++h) part_size.context += is_in(contexts, h);
        for (std::size_t i = level.first[bounds[t]]; i < level.first[bounds[t + 1]]; ++i)
            part_size.row += is_in(rows, i);
        offsets[t + 1] = part_size;
    });
    for (std::size_t t = 0; t < threads; ++t) {
        offsets[t + 1].context += offsets[t].context;
        offsets[t + 1].row += offsets[t].row;
    }
    const Offset size = offsets.back();
    const bool has_backoff = level.log_backoff.size() > 0;
    TableLevel result{
        UninitializedBuffer<std::uint32_t>(size.row), UninitializedBuffer<std::uint32_t>(size.context + 1),
        UninitializedBuffer<float>(size.row), UninitializedBuffer<float>(has_backoff ? size.row : 0)};
    result.first[size.context] = static_cast<std::uint32_t>(size.row);
    parallel_for(threads, [&](std::size_t t) {
        Offset at = offsets[t];
        for (std::size_t h = bounds[t]; h < bounds[t + 1]; ++h) {
            if (is_in(contexts, h)) result.first[at.context++] = static_cast<std::uint32_t>(at.row);
            for (std::size_t i = level.first[h]; i < level.first[h + 1]; ++i) {
                if (!is_in(rows, i)) continue;
                result.word[at.row] = level.word[i];
                result.log_prob[at.row] = level.log_prob[i];
                if (has_backoff) result.log_backoff[at.row] = level.log_backoff[i];
                ++at.row;
            }
        }
    });
    return result;
}

}  // namespace chainrule
