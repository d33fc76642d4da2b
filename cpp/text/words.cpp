#include "text/words.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace chainrule {

namespace {

std::vector<std::uint32_t> by_frequency(const WordCounter& all) {
    std::vector<std::uint32_t> order(all.counts.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        if (all.counts[a] != all.counts[b]) return all.counts[a] > all.counts[b];
        return all.words.word(a) < all.words.word(b);  // char_traits<char> compares as unsigned
    });
    return order;
}

}  // namespace

WordCounts merge_counters(std::vector<WordCounter>& parts, std::vector<std::vector<std::uint32_t>>* numbers) {
    WordCounter& all = parts.front();
    if (numbers) {
        numbers->resize(parts.size());
        numbers->front().resize(all.counts.size());
        std::iota(numbers->front().begin(), numbers->front().end(), 0);
    }
    for (std::size_t t = 1; t < parts.size(); ++t) {
        for (std::size_t i = 0; i < parts[t].counts.size(); ++i) {
            const std::uint32_t number = all.add(Word::of(parts[t].words.word(i)), parts[t].counts[i]);
            if (numbers) (*numbers)[t].push_back(number);
        }
        parts[t] = WordCounter();
    }
    std::vector<std::uint32_t> order = by_frequency(all);
    return WordCounts{std::move(all.words), std::move(all.counts), std::move(order)};
}

void merge_counters_unsorted(std::vector<WordCounter>& parts) {
    for (std::size_t t = 1; t < parts.size(); ++t) {
        for (std::size_t i = 0; i < parts[t].counts.size(); ++i)
            parts.front().add(Word::of(parts[t].words.word(i)), parts[t].counts[i]);
        parts[t] = WordCounter();
    }
}

}  // namespace chainrule
