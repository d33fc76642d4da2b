#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/input_file.hpp"
#include "base/logarithm.hpp"
#include "base/random.hpp"
#include "checks.hpp"
#include "ngram/build/count.hpp"
#include "ngram/build/discounts.hpp"
#include "ngram/build/kneser_ney.hpp"
#include "text/words.hpp"

namespace chainrule::tests {

namespace {

using Numbers = std::vector<std::uint32_t>;

template <class T>
std::vector<T> values(const UninitializedBuffer<T>& array) {
    return {array.begin(), array.end()};
}

// Words numbered by first occurrence, after <unk>, <s> and </s>.
Tokens tokens_of(std::string_view text) {
    Vocabulary vocabulary;
    std::vector<std::int32_t> ids;
    scan_words(
        text,
        [&](const Word& word) {
            ids.push_back(static_cast<std::int32_t>(vocabulary.add(word.letters, word.key)));
        },
        [&] { ids.push_back(static_cast<std::int32_t>(kEnd)); });
    return make_tokens(ids, static_cast<std::uint32_t>(vocabulary.size()), kBegin, kEnd, false);
}

void check_logs(const UninitializedBuffer<float>& logs, const std::vector<double>& expected,
                const std::string& what, const Where& where = Where::current()) {
    check(logs.size() == expected.size(), what + ": size", where);
    for (std::size_t i = 0; i < std::min(logs.size(), expected.size()); ++i) {
        const double log = std::log(expected[i]);
        const bool is_close = std::isinf(log) ? logs[i] == log : std::abs(logs[i] - log) <= 1e-6;
        check(is_close, what + " " + std::to_string(i) + ": " + std::to_string(std::exp(logs[i])), where);
    }
}

// <unk>=0 <s>=1 </s>=2 a=3 b=4 c=5
constexpr std::string_view kToy = "a b\na b\na b\na c\n";

void toy_counts(std::size_t threads) {
    const Counts counts = count_ngrams(tokens_of(kToy), 3, threads);
    check(counts.order() == 3 && counts.vocabulary == 6, "order and vocabulary");
    const Level &one = counts.levels[0], &two = counts.levels[1], &three = counts.levels[2];
    check(values(one.word) == Numbers{0, 1, 2, 3, 4, 5}, "every word has a row");
    check(values(one.count) == Numbers{0, 0, 4, 4, 3, 1}, "</s> 4, a 4, b 3, c 1");
    // To the left: of </s> b and c, of a <s>, of b and c a.
    check(values(one.continuation) == Numbers{0, 0, 2, 1, 1, 1}, "different words to the left");
    check(values(one.first) == Numbers{0, 6}, "one empty context");

    // Rows: 0 <s> a, 1 a b, 2 a c, 3 b </s>, 4 c </s>
    check(values(two.word) == Numbers{3, 4, 5, 2, 2}, "bigrams: last words");
    check(values(two.suffix) == Numbers{3, 4, 5, 2, 2}, "bigrams: suffixes are words");
    check(values(two.count) == Numbers{4, 3, 1, 3, 1}, "bigrams: counts");
    check(values(two.continuation) == Numbers{4, 1, 1, 1, 1}, "bigrams: <s> a keeps its count");
    check(values(two.first) == Numbers{0, 0, 1, 1, 3, 4, 5},
          "bigrams: behind <unk> 0, <s> 1, </s> 0, a 2, …");
    check(two.begins_from == 0 && two.begins_to == 1, "bigrams: one begins with <s>");

    // Rows: 0 <s> a b, 1 <s> a c, 2 a b </s>, 3 a c </s>
    check(values(three.word) == Numbers{4, 5, 2, 2}, "trigrams: last words");
    check(values(three.suffix) == Numbers{1, 2, 3, 4}, "trigrams: suffixes");
    check(values(three.count) == Numbers{3, 1, 3, 1}, "trigrams: counts");
    check(values(three.adjusted()) == values(three.count), "trigrams: the highest order keeps its counts");
    check(values(three.first) == Numbers{0, 2, 3, 4, 4, 4}, "trigrams: contexts");
    check(three.begins_from == 0 && three.begins_to == 2, "trigrams: two begin with <s>");
}

// All orders use the defaults D = 0.5, 1, 1.5: one of n_1 … n_4 is 0 at every order.
void toy_model(std::size_t threads) {
    const KneserNey model = estimate_kneser_ney(count_ngrams(tokens_of(kToy), 3, threads), threads);
    for (const Discounts& discounts : model.discounts) {
        check(discounts.source == DiscountSource::missing_counts && discounts.of == kDefaultDiscounts,
              "the fall-back");
    }
    // Order 1: total 2 + 1 + 1 + 1 = 5, γ = (3 · 0.5 + 1) / 5 = 0.5 over five words: 0.1 each.
    // </s> (2 − 1)/5 + 0.1, the others (1 − 0.5)/5 + 0.1.
    check_logs(model.levels[0].log_prob, {0.1, 0, 0.3, 0.2, 0.2, 0.2}, "p(w)");
    // γ(<s>) = 1.5/4, γ(a) = (0.5 + 0.5)/2, γ(b) = γ(c) = 0.5/1
    check_logs(model.levels[0].log_backoff, {1, 0.375, 1, 0.5, 0.5, 0.5}, "γ(v)");
    // p(a | <s>) = 2.5/4 + 0.375 · 0.2; p(b | a) = 0.5/2 + 0.5 · 0.2; p(</s> | b) = 0.5 + 0.5 · 0.3
    check_logs(model.levels[1].log_prob, {0.7, 0.35, 0.35, 0.65, 0.65}, "p(w | v)");
    // γ(<s> a) = (1.5 + 0.5)/4, γ(a b) = 1.5/3, γ(a c) = 0.5/1; nothing follows </s>
    check_logs(model.levels[1].log_backoff, {0.5, 0.5, 0.5, 1, 1}, "γ(u v)");
    // p(b | <s> a) = 1.5/4 + 0.5 · 0.35; p(c | <s> a) = 0.5/4 + 0.5 · 0.35; p(</s> | a b) = 0.5 + 0.5 · 0.65
    check_logs(model.levels[2].log_prob, {0.55, 0.3, 0.825, 0.825}, "p(w | u v)");
    check(model.levels[2].log_backoff.size() == 0, "the highest order is no context");
}

// Without <unk> the 0.5 of order 1 goes to four words: 0.125 each.
void closed_vocabulary() {
    const KneserNey model = estimate_kneser_ney(count_ngrams(tokens_of(kToy), 1, 1), 1, kUnknown);
    // Order 1 is the highest: counts </s> 4, a 4, b 3, c 1; total 12, γ = (3 · 1.5 + 0.5) / 12 = 5/12, 5/48
    // each.
    const double rest = 5.0 / 48;
    check_logs(model.levels[0].log_prob,
               {0, 0, 2.5 / 12 + rest, 2.5 / 12 + rest, 1.5 / 12 + rest, 0.5 / 12 + rest},
               "p(w) of a closed vocabulary");
}

// <s> once: a </s> a </s>. Bigrams: <s> a 1, </s> a 1, a </s> 2; trigrams: <s> a </s>, </s> a </s>, a </s> a.
void stream_counts() {
    const std::vector<std::int32_t> ids{3, 2, 3, 2};
    for (const std::size_t threads : {1, 2, 3}) {
        const Counts counts = count_ngrams(make_tokens(ids, 4, 1, 2, true), 3, threads);
        check(values(counts.levels[0].count) == Numbers{0, 0, 2, 2}, "stream: words");
        check(values(counts.levels[1].word) == Numbers{3, 3, 2}, "stream: bigrams");
        check(values(counts.levels[1].count) == Numbers{1, 1, 2}, "stream: their counts");
        check(values(counts.levels[1].first) == Numbers{0, 0, 1, 2, 3}, "stream: their contexts");
        check(values(counts.levels[2].word) == Numbers{2, 2, 3}, "stream: trigrams");
        check(values(counts.levels[2].first) == Numbers{0, 1, 2, 3}, "stream: their contexts");
    }
}

void discounts() {
    // Y = 10/18; D1 = 1 − 2 Y 4/10 = 5/9, D2 = 2 − 3 Y 2/4 = 7/6, D3 = 3 − 4 Y 1/2 = 17/9
    const Discounts estimate = modified_discounts({7, 10, 4, 2, 1});
    check(estimate.source == DiscountSource::counts, "from the counts");
    check_close(estimate.of[1], 5.0 / 9, 1e-12, "D1");
    check_close(estimate.of[2], 7.0 / 6, 1e-12, "D2");
    check_close(estimate.of[3], 17.0 / 9, 1e-12, "D3+");
    // Y = 1/3, D2 = 2 − 3 · 1/3 · 10/1 = −8
    const Discounts odd = modified_discounts({0, 1, 1, 10, 1});
    check(odd.source == DiscountSource::out_of_range && odd.of == kDefaultDiscounts,
          "a negative discount is rejected");
    check_close(odd.estimated[2], -8, 1e-12, "the rejected estimate is reported");
}

void vocabularies() {
    Vocabulary known;
    for (const char* word : {"12345678", "123456789", "123456780"}) known.add(word, Vocabulary::key(word));
    check(known.size() == 6 && known.word(4) == "123456789", "words of eight letters and more");
    const auto find = [&](std::string_view word) { return known.find(word, Vocabulary::key(word)); };
    check(find("123456780") == 5 && find("12345678") == 3 && find("</s>") == kEnd, "known words");
    check(find("1234567") == kUnknown && find("1234567890") == kUnknown, "other words are <unk>");
}

void empty_texts() {
    for (const std::size_t threads : {1, 2, 3}) {
        const Tokens tokens = tokens_of("");
        check(tokens.ids.size() == 0 && tokens.lines == 0 && tokens.vocabulary == 3, "no line");
        for (const bool is_stream : {false, true}) {
            Counts counts = count_ngrams(make_tokens({}, 3, 1, 2, is_stream), 3, threads);
            check(counts.levels[1].size() == 0 && counts.levels[2].size() == 0, "no n-grams");
            const KneserNey model = estimate_kneser_ney(std::move(counts), threads);
            check_logs(model.levels[0].log_prob, {0.5, 0, 0.5}, "without data the distribution is uniform");
            check_logs(model.levels[0].log_backoff, {1, 1, 1}, "no context is stored");
        }
    }
}

std::string random_text(std::size_t lines) {
    Random random(7);
    std::string text;
    for (std::size_t i = 0; i < lines; ++i) {
        for (std::uint32_t n = random.below(12); n > 0; --n) {
            text += "w" + std::to_string(random.below(1 + random.below(300))) + " ";
        }
        text += "\n";
    }
    return text;
}

template <class T>
void append(std::string& bytes, const UninitializedBuffer<T>& array) {
    bytes.append(reinterpret_cast<const char*>(array.data()), array.size() * sizeof(T));
    bytes += "|";
}

// All results for a text, as bytes.
std::string all_bytes(std::string_view text, std::size_t order, std::size_t threads) {
    Tokens tokens = tokens_of(text);
    std::string bytes;
    append(bytes, tokens.ids);
    Counts counts = count_ngrams(std::move(tokens), order, threads);
    for (const Level& level : counts.levels) {
        for (const auto* array :
             {&level.word, &level.suffix, &level.count, &level.continuation, &level.first}) {
            append(bytes, *array);
        }
    }
    const KneserNey model = estimate_kneser_ney(std::move(counts), threads);
    for (const TableLevel& level : model.levels) {
        append(bytes, level.log_prob);
        append(bytes, level.log_backoff);
    }
    return bytes;
}

void result_is_independent_of_threads() {
    for (const std::size_t lines : {1, 2, 3000}) {
        const std::string text = random_text(lines);
        for (const std::size_t order : {1, 2, 5}) {
            const std::string one = all_bytes(text, order, 1);
            check(all_bytes(text, order, 2) == one, "two threads give the bytes of one");
            check(all_bytes(text, order, 3) == one, "three threads give the bytes of one");
        }
    }
}

void probabilities_sum_to_one() {
    const KneserNey model = estimate_kneser_ney(count_ngrams(tokens_of(random_text(3000)), 2, 2), 2);
    check(model.discounts[1].source == DiscountSource::counts, "a text large enough for its own discounts");
    const TableLevel &one = model.levels[0], &two = model.levels[1];
    for (std::size_t h = 0; h + 1 < two.first.size(); ++h) {
        // Words seen after h have the stored probability, all others γ(h) p(w).
        double stored = 0, shorter = 0, all = 0;
        for (std::size_t row = two.first[h]; row < two.first[h + 1]; ++row) {
            stored += std::exp(two.log_prob[row]);
            shorter += std::exp(one.log_prob[two.word[row]]);
        }
        for (const float log : one.log_prob) all += std::exp(log);
        check_close(stored + std::exp(one.log_backoff[h]) * (all - shorter), 1, 1e-5,
                    "the sum over all words");
    }
}

void files() {
    const Scratch scratch;
    const std::string folder = std::filesystem::temp_directory_path().string();
    check_fails([&] { read_whole(scratch.name()); }, "cannot be read");
    check_fails([&] { InputFile missing(scratch.name()); }, "cannot be read");
    std::ofstream(scratch.name(), std::ios::binary) << kToy;
    check(read_whole(scratch.name()) == kToy, "the bytes of a file");
    InputFile file(scratch.name());
    char three[3];
    file.read(1, three, 3);
    check(std::string_view(three, 3) == std::string_view(kToy).substr(1, 3), "some bytes of a file");
    check(std::string_view(file.map(), file.size()) == kToy, "the bytes of a mapped file");
    check_fails([&] { file.read(file.size() - 1, three, 3); }, "became shorter");
    file.check_unchanged();
    std::ofstream(scratch.name(), std::ios::binary | std::ios::trunc).flush();
    check_fails([&] { file.check_unchanged(); }, "changed after it was opened");
    check(read_whole(scratch.name()).empty(), "an empty file");
    check_fails([&] { read_whole(folder); }, "cannot be read");
    check_fails([&] { InputFile directory(folder); }, "not a regular file");
}

void failures() {
    const std::vector<std::int32_t> line{3, 2}, open{3}, high{4, 2}, low{-1, 2}, begin{1, 2};
    check_fails([&] { count_ngrams(make_tokens(line, 4, 1, 2, false), 0, 1); }, "1 or more");
    check_fails([&] { make_tokens(open, 4, 1, 2, false); }, "does not end with </s>");
    check_fails([&] { make_tokens(high, 4, 1, 2, false); }, "contains the id 4");
    check_fails([&] { make_tokens(low, 4, 1, 2, false); }, "contains the id -1");
    check_fails([&] { make_tokens(begin, 4, 1, 2, true); }, "contains the id of <s>");
    check_fails([&] { make_tokens(line, 4, 2, 2, false); }, "different ids");
    check_fails([&] { make_tokens(line, 4, 1, 4, false); }, "different ids");
    check_fails([] { UninitializedBuffer<std::uint32_t> huge(std::numeric_limits<std::size_t>::max()); },
                "not enough memory");
}

void large_memory() {
    constexpr std::size_t size = (std::size_t{1} << 21) + 3;  // more than two large pages
    for (const Access access : {Access::in_order, Access::scattered}) {
        UninitializedBuffer<std::uint32_t> numbers(size, access);
        check(reinterpret_cast<std::uintptr_t>(numbers.data()) % 64 == 0, "on a cache line");
        numbers[0] = 1;
        numbers[size - 1] = 2;
        UninitializedBuffer<std::uint32_t> moved = std::move(numbers);
        check(moved.size() == size && moved[0] == 1 && moved[size - 1] == 2, "moved");
        const float half = 0.5F;
        std::memcpy(&moved[size - 1], &half, sizeof half);
        const UninitializedBuffer<float> floats = std::move(moved).reinterpret_as<float>();
        check(floats.size() == size && floats[size - 1] == half, "the same memory for other numbers");
    }
}

void logarithms() {
    check(logarithm(0) == -std::numeric_limits<double>::infinity(), "log 0");
    check(logarithm(1) == 0, "log 1");
    Random random(3);
    for (int i = 0; i < 1000; ++i) {
        const double x =
            std::ldexp(1.0 + random.below(1U << 30) / 1073741824.0, -static_cast<int>(random.below(200)));
        check_close(logarithm(x), std::log(x), 3e-16 * std::max(1.0, std::abs(std::log(x))),
                    "as the system's");
    }
}

}  // namespace

static void test_build() {
    for (const std::size_t threads : {1, 2, 3}) {
        toy_counts(threads);
        toy_model(threads);
    }
    closed_vocabulary();
    stream_counts();
    discounts();
    vocabularies();
    empty_texts();
    result_is_independent_of_threads();
    probabilities_sum_to_one();
    files();
    failures();
    large_memory();
    logarithms();
}

static const Test registered("build", test_build);

}  // namespace chainrule::tests
