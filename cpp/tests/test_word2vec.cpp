#include <cmath>
#include <limits>
#include <vector>

#include "base/random.hpp"
#include "checks.hpp"
#include "vectors/corpus.hpp"
#include "vectors/word2vec.hpp"

namespace chainrule::tests {

namespace {

constexpr std::size_t kCluster = 10;  // words per cluster; a sentence has words of one cluster

// A training text: every word is kept and numbered by first occurrence.
struct Text {
    void count(const std::vector<std::string>& sentences) {
        WordIdWriter counter(scratch.name());
        for (const std::string& sentence : sentences) counter.feed(sentence + "\n");
        counter.finish();
        counts = counter.counts();
        numbers = counter.numbers();
        words = counter.words();
        for (std::size_t i = 0; i < counter.types(); ++i) number_of.push_back(static_cast<std::int32_t>(i));
    }

    Scratch scratch;
    std::vector<std::int32_t> number_of;
    std::vector<std::uint64_t> counts;
    std::uint64_t numbers = 0, words = 0;
};

std::vector<std::string> two_clusters() {
    Random random(3);
    std::vector<std::string> sentences(2);
    for (std::size_t i = 0; i < kCluster; ++i) {  // first the words of one cluster, then of the other
        sentences[0] += "a" + std::to_string(i) + " ";
        sentences[1] += "b" + std::to_string(i) + " ";
    }
    for (int i = 0; i < 600; ++i) {
        std::string sentence;
        for (int j = 0; j < 12; ++j)
            sentence += (i % 2 ? "b" : "a") + std::to_string(random.below(kCluster)) + " ";
        sentences.push_back(sentence);
    }
    return sentences;
}

// Each word has three subword rows, one of them repeated.
Subwords three_each(std::size_t words, std::size_t buckets) {
    Subwords result;
    result.buckets = buckets;
    for (std::size_t i = 0; i < words; ++i) {
        result.begins.push_back(result.rows.size());
        for (const std::size_t j : {i, i + 1, i})
            result.rows.push_back(static_cast<std::uint32_t>(words + j % buckets));
    }
    result.begins.push_back(result.rows.size());
    return result;
}

double cosine(const float* a, const float* b, std::size_t dimensions) {
    double product = 0, a_2 = 0, b_2 = 0;
    for (std::size_t i = 0; i < dimensions; ++i) {
        product += static_cast<double>(a[i] * b[i]);
        a_2 += static_cast<double>(a[i] * a[i]);
        b_2 += static_cast<double>(b[i] * b[i]);
    }
    return product / std::sqrt(a_2 * b_2);
}

// Mean cosine within clusters minus mean cosine between clusters.
double separation(Word2vec& learning) {
    double sums[2] = {0, 0};
    int pairs[2] = {0, 0};
    for (std::size_t i = 0; i < 2 * kCluster; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            const int is_same = (i < kCluster) == (j < kCluster);
            const float* rows = learning.input();
            sums[is_same] +=
                cosine(rows + i * learning.width(), rows + j * learning.width(), learning.dimensions());
            ++pairs[is_same];
        }
    }
    return sums[1] / pairs[1] - sums[0] / pairs[0];
}

void clusters(const Text& text, Word2vecConfig config, bool has_parts) {
    config.dimensions = 20;
    config.epochs = 8;
    config.rate = 0.05F;
    config.sample = 0;
    Word2vec learning(config, text.scratch.name(), text.numbers, text.number_of, text.counts,
                      has_parts ? three_each(text.counts.size(), 50) : Subwords{});
    while (learning.run(0.001)) {
    }
    const std::string what = std::string(learning.simd()) + (config.is_cbow ? " cbow" : " skip-gram") +
                             (has_parts ? " with parts" : "") + ", threads " + std::to_string(config.threads);
    const Word2vecProgress progress = learning.progress();
    check(progress.words == text.words * 8 && progress.of == progress.words,
          what + ": all words are processed");
    check(learning.last_loss() > 0 && learning.last_loss() < 6 * std::log(2.0), what + ": the loss fell");
    const double difference = separation(learning);
    // Several threads write without locks; with so few rows they may overwrite each other's updates.
    check(config.threads == 1 ? difference > 0.3 : std::isfinite(difference),
          what + ": clusters are only " + std::to_string(difference) + " apart");
    std::vector<float> output;
    learning.copy_output(output);
    check(output.size() == text.counts.size() * 20, what + ": size of the output");
    learning.finish();
    check_fails([&] { learning.run(0.1); }, "training is finished");
    check_fails([&] { learning.copy_output(output); }, "were released");
}

// Small, large and missing settings: no crash, and the words are counted.
void edges() {
    for (const char* sentence : {"", "a", "a a a", "a b", "a b c d"}) {
        Text text;
        text.count({sentence});
        for (const std::size_t threads : {1, 3, 40}) {
            for (const std::size_t negative : {0, 1, 20}) {
                for (const std::size_t dimensions : {1, 16, 1000}) {
                    for (const bool is_cbow : {false, true}) {
                        Word2vecConfig config;
                        config.is_cbow = is_cbow;
                        config.dimensions = dimensions;
                        config.negative = negative;
                        config.threads = threads;
                        config.window = 50;
                        config.epochs = 2;
                        const auto make = [&] {
                            return std::make_unique<Word2vec>(config, text.scratch.name(), text.numbers,
                                                              text.number_of, text.counts, Subwords{});
                        };
                        if (text.counts.empty()) {
                            check_fails(make, "no words");
                            continue;
                        }
                        const auto learning = make();
                        while (learning->run(0.01)) {
                        }
                        check(learning->progress().words == 2 * text.words,
                              std::string("words of ") + sentence);
                    }
                }
            }
        }
    }
}

// A sentence longer than the maximum, unknown words, a diverging learning rate.
void long_sentence() {
    std::string sentence;
    for (int i = 0; i < 2500; ++i) sentence += "w" + std::to_string(i % 37) + " ";
    Text text;
    text.count({sentence});
    text.number_of[5] = -1;
    Word2vecConfig config;
    config.rate = 1e30F;
    config.epochs = 1;
    Word2vec learning(config, text.scratch.name(), text.numbers, text.number_of, text.counts, {});
    while (learning.run(1)) {
    }
    check(learning.progress().words == 2500 - 68, "word 5, which occurs 68 times, is omitted");
}

// After training, a word vector is the mean of its own row and its subword rows, one of which is repeated.
void parts_concatenate_to_the_whole() {
    Text text;
    text.count({"a b"});
    Word2vecConfig config;
    config.dimensions = 3;
    config.epochs = 1;
    Word2vec learning(config, text.scratch.name(), text.numbers, text.number_of, text.counts,
                      {{0, 3, 3}, {2, 3, 2}, 2});
    while (learning.run(1)) {
    }
    const std::vector<float> before(learning.input(), learning.input() + 4 * learning.width());
    learning.finish();
    learning.finish();  // a second call has no effect
    for (std::size_t i = 0; i < 3; ++i) {
        const auto row = [&](std::size_t number) { return before[number * learning.width() + i]; };
        const float* now = learning.input() + i;
        check_close(now[0], (row(0) + 2 * row(2) + row(3)) / 4, 1e-6, "a, which has subwords");
        for (const std::size_t other : {1, 2, 3}) {
            check(now[other * learning.width()] == row(other), "rows without subwords are unchanged");
        }
    }
    check(learning.progress().words == 2, "the word count is available after training");
}

void refusals() {
    Text text;
    text.count({"a b c"});
    const auto make = [&](Word2vecConfig config, std::vector<std::int32_t> number_of, Subwords parts) {
        Word2vec(config, text.scratch.name(), text.numbers, number_of, text.counts, std::move(parts));
    };
    const std::vector<std::int32_t> fine = text.number_of;
    Word2vecConfig config;
    check_fails([&] { make(config, {0, 1, 3}, {}); }, "number_of");
    check_fails([&] { make(config, {0, 1, -2}, {}); }, "number_of");
    check_fails([&] { make(config, fine, {{0, 1, 1}, {3}, 1}); }, "one more than there are words");
    check_fails([&] { make(config, fine, {{0, 1, 1, 2}, {3}, 1}); }, "from 0 to the number of rows");
    check_fails([&] { make(config, fine, {{0, 1, 0, 1}, {3}, 1}); }, "must rise");
    check_fails([&] { make(config, fine, {{0, 1, 1, 1}, {4}, 1}); }, "none of the buckets");
    check_fails([&] { make(config, fine, {{0, 1, 1, 1}, {2}, 1}); }, "none of the buckets");
    config.dimensions = std::numeric_limits<std::size_t>::max();
    check_fails([&] { make(config, fine, {}); }, "dimensions");
    config = {};
    config.threads = 0;
    check_fails([&] { make(config, fine, {}); }, "threads");
    config = {};
    config.simd = "sse9";
    check_fails([&] { make(config, fine, {}); }, "choose auto");
    config = {};
    Word2vec unknown(config, text.scratch.name(), text.numbers, std::vector<std::int32_t>{0}, text.counts,
                     {});
    check_fails([&] { unknown.run(1); }, "contains a word id that is out of range");
    Word2vec longer(config, text.scratch.name(), text.numbers + 9, fine, text.counts, {});
    check_fails([&] { longer.run(1); }, "was truncated while it was being read");
}

}  // namespace

static void test_word2vec() {
    Text text;
    text.count(two_clusters());
    for (const char* simd : {"none", "avx2", "avx512"}) {
        for (const std::size_t threads : {1, 2}) {
            for (const bool is_cbow : {false, true}) {
                for (const bool has_parts : {false, true}) {
                    Word2vecConfig config;
                    config.is_cbow = is_cbow;
                    config.simd = simd;
                    config.threads = threads;
                    try {
                        choose_kernels(simd);
                    } catch (const Error&) {
                        continue;
                    }
                    clusters(text, config, has_parts);
                }
            }
        }
    }
    edges();
    long_sentence();
    parts_concatenate_to_the_whole();
    refusals();
}

static const Test registered("word2vec", test_word2vec);

}  // namespace chainrule::tests
