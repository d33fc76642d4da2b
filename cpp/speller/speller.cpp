#include "speller/speller.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
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

// Decodes the character at `at` and advances `at`; returns the maximum value for invalid UTF-8.
std::uint32_t next_code(const char*& at, const char* end) {
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

}  // namespace

const Speller::Slot* Speller::Level::find(std::int64_t key) const {
    const std::size_t mask = slots.size() - 1;
    for (std::size_t at = hash(static_cast<std::uint64_t>(key)) & mask;; at = (at + 1) & mask) {
        if (slots[at].key == key) return &slots[at];
        if (slots[at].key < 0) return nullptr;
    }
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
        first_.push_back({levels[0].log_probs[id], levels[0].log_backoffs[id]});
    for (const SpellerLevel& level : levels.subspan(1)) {
        Level& table = levels_.emplace_back();
        table.slots.resize(std::bit_ceil(2 * level.keys.size() + 2));
        const std::size_t mask = table.slots.size() - 1;
        for (std::size_t row = 0; row < level.keys.size(); ++row) {
            std::size_t at = hash(static_cast<std::uint64_t>(level.keys[row])) & mask;
            while (table.slots[at].key >= 0) at = (at + 1) & mask;
            table.slots[at] = {level.keys[row], level.log_probs[row], level.log_backoffs[row],
                               static_cast<std::int32_t>(row)};
        }
    }
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
    const std::int64_t V = A + 3;
    const std::uint32_t begin = A + 1, end = A + 2;
    std::array<std::int64_t, kMaxOrder> rows;  // row of the n-gram of each length that ends here; −1: none
    std::array<double, kMaxOrder> backoffs;    // and their weights
    std::fill_n(rows.begin(), levels_.size() + 1, -1);
    std::fill_n(backoffs.begin(), levels_.size() + 1, 0.0);
    rows[0] = begin;
    backoffs[0] = first_[begin].log_backoff;
    const auto read = [&](std::uint32_t id) {
        double log_p = first_[id].log_prob;
        std::int64_t context = std::exchange(rows[0], id);
        double backoff = std::exchange(backoffs[0], first_[id].log_backoff);
        for (std::size_t m = 1; m <= levels_.size(); ++m) {
            const Slot* const slot = context < 0 ? nullptr : levels_[m - 1].find(context * V + id);
            log_p = slot ? static_cast<double>(slot->log_prob) : log_p + backoff;
            context = std::exchange(rows[m], slot ? slot->row : -1);
            backoff = std::exchange(backoffs[m], slot ? static_cast<double>(slot->log_backoff) : 0.0);
        }
        return log_p;
    };
    double sum = 0;
    const char* at = word.data();
    const char* const last = at + word.size();
    while (at < last) {
        const std::uint32_t id = number_of(next_code(at, last));
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
