#include "ngram/partition/partition_counts.hpp"

#include <algorithm>
#include <numeric>

#include "base/buffer.hpp"
#include "base/byte_stream.hpp"
#include "ngram/partition/count_sums.hpp"

namespace chainrule {

namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFF;
constexpr std::size_t kAhead = 24;  // prefetch distance in occurrences

}  // namespace

PartitionCounts::PartitionCounts(const PartitionPlan& plan, const std::vector<std::string_view>& records,
                                 std::uint64_t limit)
    : plan_(plan) {
    windows_.order = order();
    for (const std::string_view record : records) decode_windows(record, plan.shape(), limit, windows_);
    if (plan.split_contexts() > 0 && order() > 1) {
        depths_.resize(windows_.size());
        for (std::size_t i = 0; i < depths_.size(); ++i) {
            depths_[i] = static_cast<std::uint8_t>(depth_of(windows_.window(i)));
            largest_depth_ = std::max<std::uint32_t>(largest_depth_, depths_[i]);
        }
    }
    if (order() > 1) count();
}

void PartitionCounts::count() {
    std::vector<Occurrence> occurrences(windows_.size());
    for (std::uint32_t i = 0; i < occurrences.size(); ++i) occurrences[i] = {i, windows_.window(i)[0]};
    sort_by(0, occurrences);
    for (std::uint32_t n = 2; n <= order(); ++n) {
        sort_by(n - 1, occurrences);
        levels_.push_back(make_level(n, occurrences));
        // Nothing precedes <s>.
        std::erase_if(occurrences, [&](const Occurrence& occurrence) {
            return windows_.window(occurrence.window)[n - 1] == plan_.shape().begin;
        });
    }
}

// Stable counting sort by the word at a position of the windows.
void PartitionCounts::sort_by(std::uint32_t position, std::vector<Occurrence>& occurrences) {
    std::vector<std::uint32_t> begins(plan_.shape().vocabulary);
    const auto word_of = [&](const Occurrence& occurrence) {
        return windows_.window(occurrence.window)[position];
    };
    const std::size_t size = occurrences.size();
    std::vector<std::uint32_t> words(size);
    for (std::size_t i = 0; i < size; ++i) {
        if (i + kAhead < size) prefetch(&windows_.window(occurrences[i + kAhead].window)[position]);
        words[i] = word_of(occurrences[i]);
        ++begins[words[i]];
    }
    std::uint32_t sum = 0;
    for (std::uint32_t& begin : begins) sum += std::exchange(begin, sum);
    std::vector<Occurrence> sorted(size);
    for (std::size_t i = 0; i < size; ++i) sorted[begins[words[i]]++] = occurrences[i];
    occurrences.swap(sorted);
}

// Numbers the n-grams of the occurrences, which are sorted by n-gram, and replaces the row of the suffix by
// that of the n-gram.
PartitionLevel PartitionCounts::make_level(std::uint32_t n, std::vector<Occurrence>& occurrences) {
    const std::uint32_t begin = plan_.shape().begin;
    PartitionLevel level;
    std::vector<std::uint32_t> last_row_before(n < order() ? plan_.shape().vocabulary : 0, kNone);
    // N-grams have the same context if they have the same first word, and their suffixes the same context.
    const std::vector<std::uint32_t>* const contexts = n > 2 ? &levels_.back().context : nullptr;
    std::uint32_t first_word = kNone, suffix = kNone, context_of_suffix = kNone, context = kNone;
    const std::size_t size = occurrences.size();
    for (std::size_t i = 0; i < size; ++i) {
        if (i + kAhead < size) prefetch(windows_.window(occurrences[i + kAhead].window));
        Occurrence& occurrence = occurrences[i];
        const std::uint32_t* const words = windows_.window(occurrence.window);
        if (words[n - 1] != first_word || occurrence.row != suffix) {
            const std::uint32_t shorter = contexts ? (*contexts)[occurrence.row] : 0;
            if (words[n - 1] != first_word || shorter != context_of_suffix) ++context;
            first_word = words[n - 1];
            suffix = occurrence.row;
            context_of_suffix = shorter;
            level.word.push_back(words[0]);
            level.context.push_back(context);
            level.window.push_back(occurrence.window);
            level.suffix.push_back(suffix);
            level.count.push_back(0);
            level.adjusted.push_back(0);
        }
        const auto row = static_cast<std::uint32_t>(level.window.size() - 1);
        occurrence.row = row;
        level.count[row] = add_saturated(level.count[row], windows_.counts[occurrence.window]);
        if (n == order() || first_word == begin) {
            level.adjusted[row] = level.count[row];
        } else if (depths_.empty() || depths_[occurrence.window] < n) {
            // Words to the left that belong to a longer split context are counted from its sums.
            std::uint32_t& last_row = last_row_before[words[n]];
            level.adjusted[row] += last_row != row;
            last_row = row;
        }
    }
    return level;
}

std::uint32_t PartitionCounts::split_of(std::uint32_t n, std::size_t row) const {
    if (largest_depth_ + 1 < n || depths_.empty() || depths_[level(n).window[row]] + 1U < n) return kNotSplit;
    const std::uint32_t* const window = words(n, row);
    return plan_.owner([window](std::uint32_t k) { return window[1 + k]; }, n - 1).split;
}

std::size_t PartitionCounts::context_end(std::uint32_t n, std::size_t row) const {
    const std::vector<std::uint32_t>& contexts = level(n).context;
    std::size_t end = row + 1;
    while (end < contexts.size() && contexts[end] == contexts[row]) ++end;
    return end;
}

std::vector<std::pair<std::uint32_t, std::string>> PartitionCounts::sums(std::uint32_t parts) const {
    std::vector<CountSums> sums(parts, CountSums(order()));
    std::vector<std::uint32_t> contexts(
        plan_.shape().vocabulary);  // different contexts of one word, by last word
    for (std::uint32_t n = 2; n <= order(); ++n) {
        const PartitionLevel& rows = level(n);
        for (std::size_t row = 0; row < rows.size();) {
            const std::size_t end = context_end(n, row);
            const std::uint32_t split = split_of(n, row);
            for (; row < end; ++row) {
                const std::uint32_t word = rows.word[row];
                if (split != kNotSplit) {
                    sums[word % parts].add(split, {word, rows.count[row], rows.adjusted[row]});
                    continue;
                }
                sums[0].add_count(n, rows.adjusted[row]);
                if (n == 2) ++contexts[word];
            }
        }
    }
    for (std::uint32_t word = 0; word < contexts.size(); ++word)
        if (contexts[word] > 0) sums[word % parts].add_unigram(word, contexts[word]);
    std::vector<std::pair<std::uint32_t, std::string>> records;
    for (std::uint32_t part = 0; part < parts; ++part) records.emplace_back(part, sums[part].bytes());
    return records;
}

}  // namespace chainrule
