// Level-synchronous scoring (ngram/query/level_scorer.hpp) compared with word-by-word scoring: exactly the
// same values.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "checks.hpp"
#include "ngram/build/count.hpp"
#include "ngram/build/kneser_ney.hpp"
#include "ngram/query/model.hpp"
#include "random_tables.hpp"

namespace chainrule::tests {

namespace {

// Lines of words 1 … V − 3, of which the first are frequent; 0 is unknown, V − 2 and V − 1 begin and end a
// line.
std::vector<std::int32_t> some_text(Random& random, std::uint32_t V, std::size_t lines) {
    std::vector<std::int32_t> text;
    for (std::size_t i = 0; i < lines; ++i) {
        for (std::uint32_t k = random.below(12); k > 0; --k)
            text.push_back(static_cast<std::int32_t>(random.below(1 + random.below(V - 2))));
        text.push_back(static_cast<std::int32_t>(V - 1));
    }
    return text;
}

std::vector<TableLevel> estimated(const std::vector<std::int32_t>& text, std::uint32_t V, std::uint32_t order,
                                  bool is_stream) {
    Counts counts = count_ngrams(make_tokens(text, V, V - 2, V - 1, is_stream), order, 2);
    return std::move(estimate_kneser_ney(std::move(counts), 2, kEveryWord, {}).levels);
}

struct Scored {
    std::vector<double> log_probs;
    std::vector<std::uint8_t> lengths;

    bool operator==(const Scored&) const = default;
};

Scored scored(const Model& model, const std::vector<std::int32_t>& text, std::int32_t end) {
    Scored result{std::vector<double>(text.size()), std::vector<std::uint8_t>(text.size())};
    std::vector<Piece> pieces;
    for (std::size_t from = 0; from < text.size();) {
        const auto to = static_cast<std::size_t>(
            std::find(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), end) - text.begin() + 1);
        Piece piece;
        piece.begins = pieces.size() % 5 != 0;
        piece.targets = text.data() + from;
        piece.size = static_cast<std::uint32_t>(to - from);
        piece.log_probs = result.log_probs.data() + from;
        piece.lengths = result.lengths.data() + from;
        pieces.push_back(piece);
        from = to;
    }
    model.score(pieces, 2);
    return result;
}

Scored score_word_by_word(const Model& model, const std::vector<std::int32_t>& text, std::int32_t end) {
    Scored result;
    State before = model.begin(), after;
    std::size_t sentence = 0;
    const auto start = [&] { before = sentence++ % 5 != 0 ? model.begin() : State{}; };
    start();
    for (const std::int32_t word : text) {
        const StepResult answer = model.step(before, static_cast<std::uint32_t>(word), after);
        result.log_probs.push_back(answer.log_prob);
        result.lengths.push_back(static_cast<std::uint8_t>(answer.length));
        before = after;
        if (word == end) start();
    }
    return result;
}

void compare_with_stepwise_scoring(const std::vector<TableLevel>& levels, std::uint32_t V, bool is_stream,
                                   std::uint64_t seed, bool holds_suffixes = false) {
    ModelMetadata metadata;
    metadata.vocabulary = V;
    metadata.begin = V - 2;
    metadata.end = V - 1;
    metadata.unknown = 0;
    metadata.is_stream = is_stream;
    metadata.holds_suffixes = holds_suffixes;
    const auto model = Model::of(TableRows(levels), metadata, nullptr, {}, 2);
    Random random(seed + 1000);
    std::vector<std::int32_t> text = some_text(random, V, 300);
    for (int i = 0; i < 3000; ++i)  // longer than one batch
        text.push_back(static_cast<std::int32_t>(random.below(V - 2)));
    text.push_back(static_cast<std::int32_t>(V - 1));
    const auto end = static_cast<std::int32_t>(V - 1);
    check(scored(*model, text, end) == score_word_by_word(*model, text, end),
          "an order at a time differs, order " + std::to_string(levels.size()));
}

}  // namespace

static void test_level_scorer() {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        const auto order = static_cast<std::uint32_t>(1 + seed % 7);
        const auto V = 4 + static_cast<std::uint32_t>(seed * seed) * 3;
        Random random(seed);
        const auto text = some_text(random, V, 400);
        const auto all = estimated(text, V, order, seed % 2 == 0);
        compare_with_stepwise_scoring(all, V, seed % 2 == 0, seed);
        compare_with_stepwise_scoring(all, V, seed % 2 == 0, seed, true);
        compare_with_stepwise_scoring(random_tables(order, V, {1, 2, 3, 5, 9, 40}, seed), V, false,
                                      seed);  // with missing suffixes
    }
    Random random(99);  // contexts with thousands of words, and full slots
    compare_with_stepwise_scoring(estimated(some_text(random, 70000, 60000), 70000, 3, false), 70000, false,
                                  99, true);
    compare_with_stepwise_scoring(random_tables(3, 70000, {66000, 40000}, 98), 70000, false,
                                  98);  // too many for slots
}

static const Test registered("level_scorer", test_level_scorer);

}  // namespace chainrule::tests
