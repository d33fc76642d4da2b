#include "speller/character_trie.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/buffer.hpp"
#include "base/error.hpp"

namespace chainrule {

namespace {

constexpr std::uint32_t kCodes = 0x110000;
constexpr unsigned kBits = 21;  // of an id + 1; 0: the window has ended

// Grows by a quarter, so that little memory is unused or copied.
template <class T>
void append(std::vector<T>& values, T value) {
    if (values.size() == values.capacity()) values.reserve(values.size() + values.size() / 4 + 64);
    values.push_back(value);
}

}  // namespace

std::uint32_t next_character(const char*& at, const char* end) {
    const auto first = static_cast<unsigned char>(*at++);
    if (first < 0x80) return first;
    const int continuation = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : -1;
    if (continuation < 0 || end - at < continuation) return std::numeric_limits<std::uint32_t>::max();
    std::uint32_t code = first & (0x3FU >> continuation);
    for (int i = 0; i < continuation; ++i) {
        const auto byte = static_cast<unsigned char>(at[i]);
        if ((byte & 0xC0) != 0x80) return std::numeric_limits<std::uint32_t>::max();
        code = (code << 6) | (byte & 0x3F);
    }
    at += continuation;
    return code;
}

// Up to six ids from one position on, most significant first, and the number of their occurrences.
struct CharacterTrie::Window {
    std::array<std::uint64_t, 2> ids;
    std::uint64_t count;

    std::uint32_t id(std::size_t i) const {  // + 1; 0: the window has ended
        return ids[i / 3] >> (2 - i % 3) * kBits & ((1U << kBits) - 1);
    }
};

// Calls use(ids, count) with the ids of each word, its beginning and its end.
class CharacterTrie::Collector {
  public:
    Collector(const CharacterTrie& trie, bool is_single) : trie_(trie), is_single_(is_single) {
        ids_of_.assign(trie.alphabet_.empty() ? 0 : trie.alphabet_.back() + 1, 0);
        for (std::uint32_t id = 0; id < trie.alphabet_.size(); ++id) ids_of_[trie.alphabet_[id]] = id;
    }

    template <class Use>
    void for_each(const WordSource& words, const Use& use) {
        words([&](std::string_view word, std::uint64_t count) {
            ids_.assign(1, trie_.begin());
            const char* at = word.data();
            const char* const end = at + word.size();
            while (at < end) ids_.push_back(ids_of_[next_character(at, end)]);
            if (!is_single_) ids_.push_back(trie_.end());
            use(std::span<const std::uint32_t>(ids_), count);
        });
    }

  private:
    const CharacterTrie& trie_;
    bool is_single_;
    std::vector<std::uint32_t> ids_of_;  // by code point
    std::vector<std::uint32_t> ids_;
};

CharacterTrie::CharacterTrie(const WordSource& words, std::size_t order, bool is_single,
                             std::size_t windows) {
    if (order < 1 || order > kMaxOrder) throw ArgumentError("the order of a speller is 1 to 6");
    read_alphabet(words);
    levels_.resize(order);
    count_windows(words, std::max<std::size_t>(windows, 1), is_single);
}

CharacterTrie::CharacterTrie(std::vector<std::uint32_t> alphabet, std::vector<Level> levels)
    : alphabet_(std::move(alphabet)), levels_(std::move(levels)) {
    const std::uint32_t V = size();
    bool is_valid = !levels_.empty() && levels_[0].word.size() == V;
    for (std::size_t n = 0; is_valid && n < levels_.size(); ++n) {
        const Level& level = levels_[n];
        const std::size_t rows = level.word.size(),
                          following = n + 1 < levels_.size() ? levels_[n + 1].word.size() : 0;
        const bool has_first = n + 1 < levels_.size();
        is_valid = level.count.size() == rows && level.first.size() == (has_first ? rows + 1 : 0) &&
                   std::ranges::all_of(level.word, [&](std::uint32_t id) { return id < V; }) &&
                   std::ranges::is_sorted(level.first) &&
                   (!has_first || (level.first.front() == 0 && level.first.back() == following));
    }
    for (std::uint32_t id = 0; is_valid && id < V; ++id) is_valid = levels_[0].word[id] == id;
    if (!is_valid) throw ArgumentError("the n-grams of the speller do not form a trie");
}

void CharacterTrie::read_alphabet(const WordSource& words) {
    std::vector<bool> occurs(kCodes);
    words([&](std::string_view word, std::uint64_t) {
        const char* at = word.data();
        const char* const end = at + word.size();
        while (at < end) {
            const std::uint32_t code = next_character(at, end);
            if (code >= kCodes) throw ArgumentError("a word of the speller is not UTF-8");
            occurs[code] = true;
        }
    });
    for (std::uint32_t code = 0; code < kCodes; ++code)
        if (occurs[code]) alphabet_.push_back(code);
}

void CharacterTrie::count_windows(const WordSource& words, std::size_t windows, bool is_single) {
    const std::size_t order = levels_.size();
    const std::uint32_t V = size();
    Level& unigrams = levels_[0];
    unigrams.count.assign(V, 0);
    for (std::uint32_t id = 0; id < V; ++id) unigrams.word.push_back(id);
    Collector collector(*this, is_single);
    std::vector<std::uint64_t> by_first(V);  // number of windows
    collector.for_each(words, [&](std::span<const std::uint32_t> ids, std::uint64_t count) {
        for (const std::uint32_t id : ids) {
            ++by_first[id];
            unigrams.count[id] += count;
        }
    });
    unigrams.count[begin()] = 0;  // never predicted
    if (order == 1) return;
    std::uint64_t largest = 0;
    for (const std::uint64_t count : by_first) largest += count;
    UninitializedBuffer<Window> sorted(std::min<std::uint64_t>(largest, windows));
    // Adds the windows whose first id is in [from, to) and second in [second_from, second_to).
    const auto add = [&](std::uint32_t from, std::uint32_t to, std::uint32_t second_from,
                         std::uint32_t second_to, std::uint64_t most) {
        if (sorted.size() < most) sorted = UninitializedBuffer<Window>(most);
        std::size_t size = 0;
        collector.for_each(words, [&](std::span<const std::uint32_t> ids, std::uint64_t count) {
            for (std::size_t at = 0; at + 1 < ids.size(); ++at) {
                if (ids[at] < from || ids[at] >= to) continue;
                if (ids[at + 1] < second_from || ids[at + 1] >= second_to) continue;
                Window window{{0, 0}, count};
                const std::size_t length = std::min(order, ids.size() - at);
                for (std::size_t i = 0; i < length; ++i)
                    window.ids[i / 3] |= std::uint64_t{ids[at + i] + 1} << (2 - i % 3) * kBits;
                if (size == most) throw Error("the words of the speller changed while they were read");
                sorted[size++] = window;
            }
        });
        std::sort(sorted.begin(), sorted.begin() + size,
                  [](const Window& a, const Window& b) { return a.ids < b.ids; });
        add_sorted({sorted.data(), size});
    };
    // Groups of values [from, to) with at most `windows` windows, or of one value.
    const auto in_groups = [&](const std::vector<std::uint64_t>& sizes, const auto& use) {
        std::uint32_t from = 0;
        std::uint64_t size = 0;
        for (std::uint32_t id = 0; id < V; ++id) {
            if (size + sizes[id] > windows && size) {
                use(from, id, size);
                from = id;
                size = 0;
            }
            size += sizes[id];
        }
        if (size) use(from, V, size);
    };
    by_first[end()] = 0;  // nothing follows
    in_groups(by_first, [&](std::uint32_t from, std::uint32_t to, std::uint64_t size) {
        if (size <= windows) return add(from, to, 0, V, size);
        std::vector<std::uint64_t> by_second(V);
        const auto first = static_cast<std::uint32_t>(
            std::find_if(by_first.begin() + from, by_first.begin() + to, [](auto n) { return n > 0; }) -
            by_first.begin());
        collector.for_each(words, [&](std::span<const std::uint32_t> ids, std::uint64_t) {
            for (std::size_t at = 0; at + 1 < ids.size(); ++at) by_second[ids[at + 1]] += ids[at] == first;
        });
        in_groups(by_second,
                  [&](std::uint32_t second_from, std::uint32_t second_to, std::uint64_t second_size) {
                      add(first, first + 1, second_from, second_to, second_size);
                  });
    });
    while (unigrams.first.size() <= V)
        append(unigrams.first, static_cast<std::uint32_t>(levels_[1].word.size()));
    for (std::size_t n = 2; n < order; ++n)
        append(levels_[n - 1].first, static_cast<std::uint32_t>(levels_[n].word.size()));
}

// Appends a row of order n + 1.
void CharacterTrie::push(std::size_t n, std::uint32_t word) {
    if (levels_[n].word.size() >= 0xFFFFFFFE) throw Error("the speller has too many n-grams");
    if (n + 1 < levels_.size())
        append(levels_[n].first, static_cast<std::uint32_t>(levels_[n + 1].word.size()));
    append(levels_[n].word, word);
    append(levels_[n].count, std::uint64_t{0});
}

void CharacterTrie::add_sorted(std::span<Window> windows) {
    std::vector<std::uint32_t>& first = levels_[0].first;
    const Window* previous = nullptr;
    for (const Window& window : windows) {
        std::size_t same = 0;  // length of the common prefix
        if (previous)
            while (same < levels_.size() && window.id(same) == previous->id(same)) ++same;
        if (same == 0 && first.size() < window.id(0))
            while (first.size() < window.id(0))
                append(first, static_cast<std::uint32_t>(levels_[1].word.size()));
        for (std::size_t n = std::max<std::size_t>(same, 1); n < levels_.size() && window.id(n); ++n)
            push(n, window.id(n) - 1);
        for (std::size_t n = 1; n < levels_.size() && window.id(n); ++n)
            levels_[n].count.back() += window.count;
        previous = &window;
    }
}

void CharacterTrie::find_suffixes(std::size_t n) {
    const Level &level = levels_[n - 1], &below = levels_[n - 2];
    std::vector<std::uint32_t> suffixes(level.word.size());
    for (std::size_t h = 0; h < below.word.size(); ++h) {
        for (std::uint32_t row = below.first[h]; row < below.first[h + 1]; ++row) {
            if (n == 2) {
                suffixes[row] = level.word[row];
                continue;
            }
            const std::vector<std::uint32_t>& parents = levels_[n - 3].first;
            const std::uint32_t suffix = suffixes_[h];
            const auto from = below.word.begin() + parents[suffix],
                       to = below.word.begin() + parents[suffix + 1];
            const auto found = std::lower_bound(from, to, level.word[row]);
            if (found == to || *found != level.word[row])
                throw ArgumentError("the suffix of an n-gram of the speller is missing");
            suffixes[row] = static_cast<std::uint32_t>(found - below.word.begin());
        }
    }
    suffixes_ = std::move(suffixes);
}

CharacterTrie::Estimate CharacterTrie::estimate(std::size_t n, std::span<const double> shorter) {
    if (n > levels_.size() || n != estimated_ + 1)
        throw ArgumentError("the orders of the speller are estimated once and in turn");
    if (shorter.size() != (n == 1 ? size() : levels_[n - 2].word.size()))
        throw ArgumentError("the probabilities are not those of the next lower order");
    Level& level = levels_[n - 1];
    estimated_ = n;
    if (n > 1) find_suffixes(n);
    const std::size_t contexts = n == 1 ? 1 : levels_[n - 2].word.size();
    Estimate result{std::vector<double>(level.word.size()), std::vector<double>(contexts)};
    for (std::size_t h = 0; h < contexts; ++h) {
        const std::size_t from = n == 1 ? 0 : levels_[n - 2].first[h];
        const std::size_t to = n == 1 ? level.word.size() : levels_[n - 2].first[h + 1];
        double total = 0, types = 0, sum = 0;
        for (std::size_t row = from; row < to; ++row) {
            total += static_cast<double>(level.count[row]);
            types += level.count[row] > 0;
        }
        const double divisor = std::max(total, 1.0) + types;
        for (std::size_t row = from; row < to; ++row) {
            result.p[row] = static_cast<double>(level.count[row]) / divisor;
            sum += result.p[row];
        }
        double gamma = 1.0 - sum;
        if (std::abs(gamma) < 1e-15 * size()) gamma = 0;  // rounding error
        result.gamma[h] = gamma;
        for (std::size_t row = from; row < to; ++row)
            result.p[row] += gamma * shorter[n == 1 ? row : suffixes_[row]];
    }
    std::vector<std::uint64_t>().swap(level.count);
    if (n == levels_.size()) std::vector<std::uint32_t>().swap(suffixes_);
    return result;
}

}  // namespace chainrule
