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

constexpr std::size_t kLongest = 16;  // characters of an n-gram, at most
constexpr std::size_t kRemembered = 1 << 15;
constexpr std::size_t kShort = 16;  // bytes of a word that is remembered, at most

std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 32)) * 0x9E3779B97F4A7C15ULL;
    return x ^ (x >> 29);
}

// The character at `at`, which is moved behind it; above all code points where there is none.
std::uint32_t next_code(const char*& at, const char* end) {
    const auto first = static_cast<unsigned char>(*at++);
    if (first < 0x80) return first;
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : -1;
    if (more < 0 || end - at < more) return std::numeric_limits<std::uint32_t>::max();
    std::uint32_t code = first & (0x3FU >> more);
    for (int i = 0; i < more; ++i) {
        const auto byte = static_cast<unsigned char>(at[i]);
        if ((byte & 0xC0) != 0x80) return std::numeric_limits<std::uint32_t>::max();
        code = (code << 6) | (byte & 0x3F);
    }
    at += more;
    return code;
}

}  // namespace

const Speller::Slot* Speller::Level::find(std::int64_t key) const {
    const std::size_t mask = slots.size() - 1;
    for (std::size_t at = mixed(static_cast<std::uint64_t>(key)) & mask;; at = (at + 1) & mask) {
        if (slots[at].key == key) return &slots[at];
        if (slots[at].key < 0) return nullptr;
    }
}

Speller::Speller(SpellerFacts facts, std::span<const SpellerLevel> levels) : facts_(std::move(facts)) {
    const std::vector<std::uint32_t>& alphabet = facts_.alphabet;
    const std::size_t V = alphabet.size() + 3;
    const auto need = [](bool is_so) {
        if (!is_so) throw Error("the tables of the speller are not sound; train or copy the model anew");
    };
    need(std::adjacent_find(alphabet.begin(), alphabet.end(), std::greater_equal<>()) == alphabet.end());
    need(!levels.empty() && levels.size() <= kLongest && levels[0].log_probs.size() == V);
    std::size_t before = V;
    for (const SpellerLevel& level : levels) {
        const std::span<const std::int64_t> keys = level.keys;
        const std::size_t size = keys.size();
        need(size < (std::size_t{1} << 31) && level.log_probs.size() == size);
        need(level.log_backoffs.size() == size);
        need(std::adjacent_find(keys.begin(), keys.end(), std::greater_equal<>()) == keys.end());
        const std::size_t most = &level == &levels[0] ? V : before * V;
        need(!size || (keys.front() >= 0 && static_cast<std::size_t>(keys.back()) < most));
        before = size;
    }
    for (std::size_t id = 0; id < V; ++id)
        first_.push_back({levels[0].log_probs[id], levels[0].log_backoffs[id]});
    for (const SpellerLevel& level : levels.subspan(1)) {
        Level& made = levels_.emplace_back();
        made.slots.resize(std::bit_ceil(2 * level.keys.size() + 2));
        const std::size_t mask = made.slots.size() - 1;
        for (std::size_t row = 0; row < level.keys.size(); ++row) {
            std::size_t at = mixed(static_cast<std::uint64_t>(level.keys[row])) & mask;
            while (made.slots[at].key >= 0) at = (at + 1) & mask;
            made.slots[at] = {level.keys[row], level.log_probs[row], level.log_backoffs[row],
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
    const auto& alphabet = facts_.alphabet;
    const auto found = std::lower_bound(alphabet.begin(), alphabet.end(), code);
    if (found == alphabet.end() || *found != code) return static_cast<std::uint32_t>(alphabet.size());
    return static_cast<std::uint32_t>(found - alphabet.begin());
}

// The (m + 1)-gram that was found for a character is the context of m + 1 characters of the next one, so that
// each length is looked up once.
double Speller::log_prob(std::string_view word) const {
    if (!facts_.placeholder.empty() && word == facts_.placeholder) return facts_.log_placeholder;
    const auto A = static_cast<std::uint32_t>(facts_.alphabet.size());
    const std::int64_t V = A + 3;
    const std::uint32_t begin = A + 1, end = A + 2;
    std::array<std::int64_t, kLongest> rows;  // of the n-grams of each length that end here, −1: none
    std::array<double, kLongest> backoffs;    // and their weights
    std::fill_n(rows.begin(), levels_.size() + 1, -1);
    std::fill_n(backoffs.begin(), levels_.size() + 1, 0.0);
    rows[0] = begin;
    backoffs[0] = first_[begin].log_backoff;
    const auto read = [&](std::uint32_t id) {
        double log_p = first_[id].log_prob;
        std::int64_t context = std::exchange(rows[0], id);
        double backoff = std::exchange(backoffs[0], first_[id].log_backoff);
        for (std::size_t m = 1; m <= levels_.size(); ++m) {
            const Slot* const found = context < 0 ? nullptr : levels_[m - 1].find(context * V + id);
            log_p = found ? static_cast<double>(found->log_prob) : log_p + backoff;
            context = std::exchange(rows[m], found ? found->row : -1);
            backoff = std::exchange(backoffs[m], found ? static_cast<double>(found->log_backoff) : 0.0);
        }
        return log_p;
    };
    double sum = 0;
    const char* at = word.data();
    const char* const last = at + word.size();
    while (at < last) {
        const std::uint32_t id = number_of(next_code(at, last));
        sum += read(id) - (id == A ? facts_.log_others : 0);
    }
    if (!facts_.is_single) sum += read(end);
    return sum - facts_.log_outside;
}

struct Speller::Reader::Memory {
    struct Met {
        std::array<char, kShort> letters{};
        std::uint64_t length = 0;  // 0: free
        double log_prob = 0;
    };
    std::vector<Met> met = std::vector<Met>(kRemembered);
};

Speller::Reader::Reader(const Speller& speller) : speller_(speller) {
    const std::lock_guard lock(speller.mutex_);
    if (speller.idle_.empty()) {
        memory_ = std::make_unique<Memory>();
    } else {
        memory_ = std::move(speller.idle_.back());
        speller.idle_.pop_back();
    }
}

Speller::Reader::~Reader() {
    const std::lock_guard lock(speller_.mutex_);
    try {
        speller_.idle_.push_back(std::move(memory_));
    } catch (const std::bad_alloc&) {  // then it is forgotten
    }
}

double Speller::Reader::log_prob(std::string_view word) {
    if (word.empty() || word.size() > kShort) return speller_.log_prob(word);
    std::array<char, kShort> letters{};
    std::memcpy(letters.data(), word.data(), word.size());
    std::uint64_t low, high;
    std::memcpy(&low, letters.data(), 8);
    std::memcpy(&high, letters.data() + 8, 8);
    Memory::Met& met = memory_->met[mixed(low ^ mixed(high + word.size())) % kRemembered];
    if (met.length != word.size() || met.letters != letters)
        met = {letters, word.size(), speller_.log_prob(word)};
    return met.log_prob;
}

}  // namespace chainrule
