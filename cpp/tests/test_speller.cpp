#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "checks.hpp"
#include "speller/speller.hpp"

namespace chainrule::tests {

namespace {

// Two letters, a and é: numbers a 0, é 1, any other 2, beginning 3, end 4. Bigrams: beginning a, a é.
constexpr std::int64_t kV = 5;
const std::vector<std::int64_t> kOnes{0, 1, 2, 3, 4}, kTwos{0 * kV + 1, 3 * kV + 0};
const std::vector<float> kOne{-1, -2, -3, -50, -4}, kOneBackoff{-0.5F, -0.25F, 0, -0.125F, 0};
const std::vector<float> kTwo{-0.75F, -0.375F}, kTwoBackoff{0, 0};

SpellerConfig config() { return {{'a', 0xE9}, 10, 0.0625, false}; }

std::vector<SpellerLevel> levels() { return {{kOnes, kOne, kOneBackoff}, {kTwos, kTwo, kTwoBackoff}}; }

void worked_by_hand(const Speller& speller) {
    // a after the beginning −0.375; the end after a: −0.5 − 4
    check_close(speller.log_prob("a"), -0.375 - 4.5 - 0.0625, 0, "a");
    // é after a −0.75; the end after é: −0.25 − 4
    check_close(speller.log_prob("a\xC3\xA9"), -0.375 - 0.75 - 4.25 - 0.0625, 0, "aé");
    // unknown character after the beginning: −0.125 − 3 − 10, and the end: 0 − 4
    check_close(speller.log_prob("x"), -13.125 - 4 - 0.0625, 0, "x");
    check_close(speller.log_prob("\xF0\x9F\x98\x80"), speller.log_prob("x"), 0,
                "one unknown character of four bytes");
    check_close(speller.log_prob(""), -4.125 - 0.0625, 0, "nothing");
    // invalid UTF-8: each byte is an unknown character
    for (const std::string_view torn : {"\xC3", "\xF0\x9F\x98", "\x80", "\xFF", "\xE2\x28"}) {
        check(speller.log_prob(torn) <= speller.log_prob("x"), "torn bytes");
    }
}

// Cached scorers on several threads: words that are cached, evicted, or too long.
void remembered(const Speller& speller) {
    std::vector<std::string> words;
    for (int i = 0; i < 50000; ++i) {
        std::string word;
        for (int n = i + 2; n > 1; n /= 3) word += n % 3 == 0 ? "a" : n % 3 == 1 ? "x" : "\xC3\xA9";
        words.push_back(i % 7 ? word : word + word + word);
    }
    std::vector<std::size_t> wrong(3);
    std::vector<std::thread> threads;
    for (std::size_t& count : wrong) {
        threads.emplace_back([&] {
            for (int round = 0; round < 2; ++round) {
                Speller::CachedScorer reader(speller);
                for (const std::string& word : words)
                    count += reader.log_prob(word) != speller.log_prob(word);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    check(wrong == std::vector<std::size_t>(3), "the cached scorer equals the speller");
}

}  // namespace

static void test_speller() {
    const Speller speller(config(), levels());
    worked_by_hand(speller);
    remembered(speller);
    SpellerConfig single = config();
    single.is_single = true;
    check_close(Speller(single, levels()).log_prob("a"), -0.375 - 0.0625, 0, "one character needs no end");
    SpellerConfig with_placeholder = config();
    with_placeholder.placeholder = "a\xC3\xA9";
    with_placeholder.log_placeholder = -0.125;
    const Speller placed(with_placeholder, levels());
    check_close(placed.log_prob("a\xC3\xA9"), -0.125, 0, "the placeholder");
    check_close(Speller::CachedScorer(placed).log_prob("a\xC3\xA9"), -0.125, 0, "the placeholder, cached");
    for (const std::string_view other : {"a", "a\xC3\xA9x", ""})
        check_close(placed.log_prob(other), speller.log_prob(other), 0, "all but the placeholder");
    check_fails([] { Speller(config(), {}); }, "invalid");
}

static const Test registered("speller", test_speller);

}  // namespace chainrule::tests
