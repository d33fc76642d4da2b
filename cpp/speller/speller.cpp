#include "speller/speller.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kMaxOrder = 16;  // maximum characters of an n-gram
constexpr std::size_t kCacheSize = 1 << 15;
constexpr std::size_t kMaxCachedBytes = 16;  // maximum bytes of a cached word

std::uint64_t hash(std::uint64_t x) {
    x = (x ^ (x >> 32)) * 0x9E3779B97F4A7C15ULL;
    return x ^ (x >> 29);
}

}  // namespace

std::int64_t Speller::Level::find(std::int64_t context, std::uint32_t id) const {
    const std::size_t begin = first[static_cast<std::size_t>(context)];
    std::size_t from = begin, size = first[static_cast<std::size_t>(context) + 1] - begin;
    while (size > 0) {
        const std::size_t half = size / 2;
        if (word[from + half] < id) {
            from += half + 1;
            size -= half + 1;
        } else {
            size = half;
        }
    }
    const bool is_found = from < first[static_cast<std::size_t>(context) + 1] && word[from] == id;
    return is_found ? static_cast<std::int64_t>(from) : -1;
}

Speller::Speller(SpellerConfig config, std::span<const SpellerLevel> levels) : config_(std::move(config)) {
    const std::vector<std::uint32_t>& alphabet = config_.alphabet;
    const std::size_t V = alphabet.size() + 3;
    const auto require = [](bool is_valid) {
        if (!is_valid)
            throw Error("the tables of the speller are invalid; retrain the model or copy it again");
    };
    require(std::adjacent_find(alphabet.begin(), alphabet.end(), std::greater_equal<>()) == alphabet.end());
    require(!levels.empty() && levels.size() <= kMaxOrder && levels[0].log_probs.size() == V);
    std::size_t previous_size = V;
    for (const SpellerLevel& level : levels) {
        const std::span<const std::int64_t> keys = level.keys;
        const std::size_t size = keys.size();
        require(size < (std::size_t{1} << 31) && level.log_probs.size() == size);
        require(level.log_backoffs.size() == size);
        require(std::adjacent_find(keys.begin(), keys.end(), std::greater_equal<>()) == keys.end());
        const std::size_t limit = &level == &levels[0] ? V : previous_size * V;
        require(!size || (keys.front() >= 0 && static_cast<std::size_t>(keys.back()) < limit));
        previous_size = size;
    }
    for (std::size_t id = 0; id < V; ++id)
        characters_.push_back({levels[0].log_probs[id], levels[0].log_backoffs[id]});
    rows_.reserve(2 * levels.size());  // the levels view the elements
    previous_size = V;
    for (const SpellerLevel& level : levels.subspan(1)) {
        std::vector<std::uint32_t>& first = rows_.emplace_back();
        std::vector<std::uint32_t>& word = rows_.emplace_back();
        for (std::size_t row = 0; row < level.keys.size(); ++row) {
            const auto key = static_cast<std::uint64_t>(level.keys[row]);
            while (first.size() <= key / V) first.push_back(static_cast<std::uint32_t>(row));
            word.push_back(static_cast<std::uint32_t>(key % V));
        }
        first.resize(previous_size + 1, static_cast<std::uint32_t>(level.keys.size()));
        levels_.push_back({first,
                           word,
                           {{level.log_probs.begin(), level.log_probs.end()},
                            {level.log_backoffs.begin(), level.log_backoffs.end()}}});
        previous_size = level.keys.size();
    }
    index_alphabet();
}

Speller::Speller(SpellerConfig config, std::shared_ptr<const CharacterTrie> trie,
                 std::vector<SpellerLogs> logs)
    : config_(std::move(config)), trie_(std::move(trie)) {
    const auto& levels = trie_->levels();
    bool is_valid =
        levels.size() <= kMaxOrder && logs.size() == levels.size() && config_.alphabet == trie_->alphabet();
    for (std::size_t k = 0; is_valid && k < levels.size(); ++k) {
        is_valid = logs[k].log_probs.size() == levels[k].word.size() &&
                   logs[k].log_backoffs.size() == levels[k].word.size();
    }
    if (!is_valid) throw Error("the logarithms are not those of the n-grams of the speller");
    for (std::size_t id = 0; id < trie_->size(); ++id)
        characters_.push_back({logs[0].log_probs[id], logs[0].log_backoffs[id]});
    for (std::size_t k = 1; k < levels.size(); ++k)
        levels_.push_back({levels[k - 1].first, levels[k].word, std::move(logs[k])});
    index_alphabet();
}

void Speller::index_alphabet() {
    const std::vector<std::uint32_t>& alphabet = config_.alphabet;
    ascii_.fill(static_cast<std::uint32_t>(alphabet.size()));
    for (std::size_t id = 0; id < alphabet.size() && alphabet[id] < ascii_.size(); ++id) {
        ascii_[alphabet[id]] = static_cast<std::uint32_t>(id);
    }
}

Speller::~Speller() = default;

std::uint32_t Speller::number_of(std::uint32_t code) const {
    if (code < ascii_.size()) return ascii_[code];
    const auto& alphabet = config_.alphabet;
    const auto slot = std::lower_bound(alphabet.begin(), alphabet.end(), code);
    if (slot == alphabet.end() || *slot != code) return static_cast<std::uint32_t>(alphabet.size());
    return static_cast<std::uint32_t>(slot - alphabet.begin());
}

// The (m + 1)-gram found for a character is the context of length m + 1 of the next character, so that
// each length is looked up once.
double Speller::log_prob(std::string_view word) const {
    if (!config_.placeholder.empty() && word == config_.placeholder) return config_.log_placeholder;
    const auto A = static_cast<std::uint32_t>(config_.alphabet.size());
    const std::uint32_t begin = A + 1, end = A + 2;
    std::array<std::int64_t, kMaxOrder> rows;  // row of the n-gram of each length that ends here; −1: none
    std::array<double, kMaxOrder> backoffs;    // and their weights
    std::fill_n(rows.begin(), levels_.size() + 1, -1);
    std::fill_n(backoffs.begin(), levels_.size() + 1, 0.0);
    rows[0] = begin;
    backoffs[0] = characters_[begin].log_backoff;
    const auto read = [&](std::uint32_t id) {
        double log_p = characters_[id].log_prob;
        std::int64_t context = std::exchange(rows[0], id);
        double backoff = std::exchange(backoffs[0], characters_[id].log_backoff);
        for (std::size_t m = 1; m <= levels_.size(); ++m) {
            const Level& level = levels_[m - 1];
            const std::int64_t row = context < 0 ? -1 : level.find(context, id);
            const auto at_row = static_cast<std::size_t>(row);
            log_p = row >= 0 ? static_cast<double>(level.logs.log_probs[at_row]) : log_p + backoff;
            context = std::exchange(rows[m], row);
            backoff = std::exchange(backoffs[m],
                                    row >= 0 ? static_cast<double>(level.logs.log_backoffs[at_row]) : 0.0);
        }
        return log_p;
    };
    double sum = 0;
    const char* at = word.data();
    const char* const last = at + word.size();
    while (at < last) {
        const std::uint32_t id = number_of(next_character(at, last));
        sum += read(id) - (id == A ? config_.log_others : 0);
    }
    if (!config_.is_single) sum += read(end);
    return sum - config_.log_outside;
}

struct Speller::CachedScorer::Cache {
    struct Entry {
        std::array<char, kMaxCachedBytes> letters{};
        std::uint64_t length = 0;  // 0: free
        double log_prob = 0;
    };
    std::vector<Entry> entry = std::vector<Entry>(kCacheSize);
};

Speller::CachedScorer::CachedScorer(const Speller& speller) : speller_(speller) {
    const std::lock_guard lock(speller.mutex_);
    if (speller.idle_caches_.empty()) {
        cache_ = std::make_unique<Cache>();
    } else {
        cache_ = std::move(speller.idle_caches_.back());
        speller.idle_caches_.pop_back();
    }
}

Speller::CachedScorer::~CachedScorer() {
    const std::lock_guard lock(speller_.mutex_);
    try {
        speller_.idle_caches_.push_back(std::move(cache_));
    } catch (const std::bad_alloc&) {  // the cache is discarded
    }
}

double Speller::CachedScorer::log_prob(std::string_view word) {
    if (word.empty() || word.size() > kMaxCachedBytes) return speller_.log_prob(word);
    std::array<char, kMaxCachedBytes> letters{};
    std::memcpy(letters.data(), word.data(), word.size());
    std::uint64_t low, high;
    std::memcpy(&low, letters.data(), 8);
    std::memcpy(&high, letters.data() + 8, 8);
    Cache::Entry& entry = cache_->entry[hash(low ^ hash(high + word.size())) % kCacheSize];
    if (entry.length != word.size() || entry.letters != letters)
        entry = {letters, word.size(), speller_.log_prob(word)};
    return entry.log_prob;
}

}  // namespace chainrule
