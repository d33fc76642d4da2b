// Model queries compared with a map of n-grams: find the longest match, add the back-off weights.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checks.hpp"
#include "ngram/query/model.hpp"
#include "ngram/query/sentences.hpp"
#include "random_tables.hpp"

namespace chainrule::tests {

namespace {

using Words = std::vector<std::uint32_t>;

struct Row {
    float log_prob, log_backoff;
};

// Every n-gram by its words.
std::map<Words, Row> spelled(const std::vector<TableLevel>& levels) {
    std::map<Words, Row> all;
    std::vector<Words> contexts{{}};
    for (const TableLevel& level : levels) {
        std::vector<Words> longer;
        for (std::size_t h = 0; h < contexts.size(); ++h) {
            for (std::uint32_t i = level.first[h]; i < level.first[h + 1]; ++i) {
                Words words = contexts[h];
                words.push_back(level.word[i]);
                all[words] = {level.log_prob[i], level.log_backoff.size() ? level.log_backoff[i] : 0.0F};
                longer.push_back(std::move(words));
            }
        }
        contexts = std::move(longer);
    }
    return all;
}

// log p of the last word by definition: the stored p(w | h), or weight(h) p(w | h without its first word).
double defined(const std::map<Words, Row>& all, const Words& words, const ModelMetadata& metadata) {
    if (const auto result = all.find(words); result != all.end()) return result->second.log_prob;
    const Words context(words.begin(), words.end() - 1), shorter(words.begin() + 1, words.end());
    double weight = metadata.log_missing;
    for (std::size_t i = 1; i < context.size(); ++i)
        if (context[i] == metadata.begin) weight = 0;  // contexts do not cross <s>
    if (const auto result = all.find(context); result != all.end()) weight = result->second.log_backoff;
    return defined(all, shorter, metadata) + weight;
}

// Context of a stream model: words before the last <s> are ignored, and <s> is read as </s>.
Words as_read(Words words, const ModelMetadata& metadata) {
    const auto last = std::find(words.rbegin(), words.rend(), metadata.begin);
    if (!metadata.is_stream || last == words.rend()) return words;
    *last = metadata.end;
    return {last.base() - 1, words.end()};
}

std::vector<Words> some_texts(Random& random, std::uint32_t V) {
    std::vector<Words> texts;
    for (std::size_t i = 0; i < 60; ++i) {
        Words words;
        for (std::uint32_t k = random.below(20); k > 0; --k) words.push_back(random.below(V));
        texts.push_back(std::move(words));
    }
    return texts;
}

void check_scores(const Model& model, const std::vector<TableLevel>& levels, Random& random) {
    const std::map<Words, Row> all = spelled(levels);
    const ModelMetadata& metadata = model.metadata();
    const std::size_t longest = model.order() - 1;
    const std::vector<Words> texts = some_texts(random, metadata.vocabulary);
    std::vector<std::vector<std::int32_t>> targets;
    std::vector<std::vector<double>> result;
    std::vector<Piece> pieces;
    for (const Words& text : texts) {
        targets.emplace_back(text.begin(), text.end());
        result.emplace_back(text.size());
    }
    for (std::size_t i = 0; i < texts.size(); ++i) {
        Piece piece;
        piece.begins = true;
        piece.targets = targets[i].data();
        piece.size = static_cast<std::uint32_t>(targets[i].size());
        piece.log_probs = result[i].data();
        pieces.push_back(piece);
    }
    model.score(pieces, 3);
    for (std::size_t i = 0; i < texts.size(); ++i) {
        Words read(longest, metadata.begin);
        for (std::size_t t = 0; t < texts[i].size(); ++t) {
            Words words = as_read({read.end() - static_cast<std::ptrdiff_t>(longest), read.end()}, metadata);
            words.push_back(texts[i][t]);
            read.push_back(texts[i][t]);
            const double expected = defined(all, words, metadata);
            const bool is_same = result[i][t] == expected || std::abs(result[i][t] - expected) < 1e-9;
            check(is_same, "log p is " + std::to_string(result[i][t]) + ", not " + std::to_string(expected));
        }
    }
}

void check_next(const Model& model, Random& random) {
    const std::uint32_t V = model.metadata().vocabulary;
    std::vector<double> all(V);
    for (int i = 0; i < 20; ++i) {
        std::vector<std::int32_t> words;
        for (std::size_t m = 1; m < model.order(); ++m)
            words.push_back(static_cast<std::int32_t>(random.below(V)));
        const State state = model.after(words);
        model.next(state, all.data());
        State after;
        for (std::uint32_t w = 0; w < V; ++w) {
            const double one = model.step(state, w, after).log_prob;
            check(one == all[w] || std::abs(one - all[w]) < 1e-12,
                  "the probability of a word equals its entry");
        }
        const std::vector<Candidate> best = model.top(state, 5);
        for (const Candidate& candidate : best)
            check(candidate.log_prob == all[candidate.word] ||
                      std::abs(candidate.log_prob - all[candidate.word]) < 1e-12,
                  "the best words have their probabilities");
        check(best.empty() || best[0].log_prob >= *std::max_element(all.begin(), all.end()) - 1e-12,
              "the best word is the best");
        check(std::isfinite(all[model.draw(state, 0.999)]), "only possible words are drawn");
    }
}

void test_models() {
    Random random(7);
    for (std::size_t order = 1; order <= 6; ++order) {
        for (const float log_missing : {0.0F, -0.5F}) {
            const std::vector<TableLevel> levels = random_tables(order, 12, {0, 1, 8, 9, 12}, order);
            ModelMetadata metadata = metadata_of(levels).model;
            metadata.is_stream = true;  // </s> is a word like others
            metadata.log_missing = log_missing;
            for (const LayoutKind kind : {LayoutKind::fast, LayoutKind::small}) {
                const auto model = Model::of(TableRows(levels), metadata, nullptr, {kind, 0}, 2);
                check_scores(*model, levels, random);
                check_next(*model, random);
            }
        }
    }
}

void test_states() {
    const std::vector<TableLevel> levels = random_tables(3, 12, {1, 9}, 3);
    const auto model = Model::of(TableRows(levels), metadata_of(levels).model, nullptr, {}, 1);
    State one, other;
    model->step(model->begin(), 5, one);
    model->step(model->begin(), 5, other);
    check(one == other && one.hash() == other.hash(), "the same words lead to the same state");
    other.copy_from(model->begin());
    check(!(one == other), "different words lead to a different state");
}

void test_lines() {
    const std::vector<std::string_view> expected{"a b", "", "c", "d", "e"};
    check(split_text_lines("a b\r\n\nc\rd\ne") == expected, "lines end at LF, CRLF and CR");
    check(split_text_lines("").empty() && split_text_lines("x\n").size() == 1,
          "the last line need not be ended");
}

}  // namespace

static void test_query() {
    test_models();
    test_states();
    test_lines();
}

static const Test registered("query", test_query);

}  // namespace chainrule::tests
