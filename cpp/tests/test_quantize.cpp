// Packed bits and quantised columns.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.hpp"
#include "checks.hpp"
#include "ngram/build/count.hpp"
#include "ngram/build/kneser_ney.hpp"
#include "ngram/format/packed_bits.hpp"
#include "ngram/format/quantize.hpp"
#include "ngram/query/model.hpp"

namespace chainrule::tests {

namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

bool is_same(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

void test_packed_bits() {
    Random random(1);
    bool is_packed = true, is_found = true;
    for (unsigned width = 0; width <= 32; ++width) {
        std::vector<std::uint64_t> numbers(100);
        for (std::uint64_t& number : numbers) number = random.next() & low_bits(width);
        std::vector<char> bytes(100 * 4 + 8 + kPackedSlack);
        BitPacker packer(bytes.data());
        for (const std::uint64_t number : numbers) packer.put(number, width);
        const auto used = static_cast<std::uint64_t>(packer.finish() - bytes.data());
        is_packed &= used == (100 * width + 63) / 64 * 8;
        for (std::size_t i = 0; i < numbers.size(); ++i)
            is_packed &= (load_bits(bytes.data(), i * width) & low_bits(width)) == numbers[i];
    }
    for (int i = 0; i < 2000; ++i) {
        std::uint64_t word = std::uint64_t{random.next()} << 32 | random.next();
        if (i % 3 == 0) word &= std::uint64_t{random.next()} << random.below(33);
        if (i == 0) word = ~std::uint64_t{0};
        unsigned k = 0;
        for (unsigned bit = 0; bit < 64; ++bit)
            if (word >> bit & 1) is_found &= find_one(word, k++) == bit;
        is_found &= count_ones(word) == k;
    }
    check(is_packed, "numbers of every width come back");
    check(is_found, "the set bits equal those found by a loop");
}

// A few values are stored in a table, non-positive values lose their sign bit, others are stored unchanged.
void test_exact() {
    std::vector<float> few, many, positive;
    for (int i = 0; i < 200000; ++i) {
        few.push_back(static_cast<float>(i % 5) - 2.0F);
        many.push_back(-static_cast<float>(i));
        positive.push_back(static_cast<float>(i));
    }
    const auto codes_of = [](const std::vector<float>& values) {
        ColumnStatistics one(false), other(false);
        one.add({values.data(), 70000});
        other.add({values.data() + 70000, values.size() - 70000});
        one.join(other);
        return one.codes();
    };
    const ColumnCodes table = codes_of(few), signless = codes_of(many), plain = codes_of(positive);
    check(table.coding == ColumnCoding::table && table.bits == 3 && table.table.size() == 8,
          "5 values: 3 bits");
    check(table.table[table.code(-2.0F)] == -2.0F && table.table[table.code(2.0F)] == 2.0F,
          "all 5 come back");
    check(signless.coding == ColumnCoding::signless && signless.bits == 31, "no sign: 31 bits");
    check(signless.code(-1.0F) == 0x3F800000U && signless.code(-0.0F) == 0, "the bits below the sign");
    check(signless.code(0.0F) > 0x7F800000U && signless.code(kNone) == 0x7F800000U, "+0 is above −inf");
    check(plain.coding == ColumnCoding::plain && plain.code(1.0F) == 0x3F800000U, "all 32 bits");
    check_fails([&] { table.code(7.0F); }, "changed");
}

void test_quantized() {
    Random random(11);
    std::vector<float> values;
    for (int i = 0; i < 50000; ++i)
        values.push_back(static_cast<float>(-30 * std::pow((random.below(1U << 20) + 0.5) / (1U << 20), 4)));
    values.insert(values.end(), {kNone, 0.0F, -0.0F});
    ColumnStatistics survey(true);
    survey.add(values);
    const ColumnCodes codes = survey.codes();
    check(codes.bits == 8 && codes.table.size() == 256, "256 values");
    double error = 0, finite = 0;
    bool is_near = true, is_at_most_zero = true;
    for (const float value : values) {
        const float coded = codes.table[codes.code(value)];
        is_at_most_zero &= coded <= 0;
        if (value == 0 || value == kNone) {
            is_near &= is_same(coded, value);
            continue;
        }
        double least = 1e9;
        for (const float other : codes.table)
            if (other != 0) least = std::min(least, std::abs(static_cast<double>(value) - other));
        // Numbers that share their upper 18 bits have the same code: it is the nearest up to a relative error
        // of 2^−9.
        is_near &= std::abs(static_cast<double>(value) - coded) <= least + std::abs(value) / 512;
        finite += 1;
        error += std::pow(static_cast<double>(value) - coded, 2);
    }
    error /= finite;
    check(is_near, "numbers are rounded to the nearest value; zeros and infinities are exact");
    check(is_at_most_zero, "no logarithm of a probability is above 0");
    // 30 u^4 of a uniform u has the density f(x) = (x / 30)^(−3/4) / 120, and the best K values have the mean
    // square error (∫ f^(1/3))³ / (12 K²) = 30² (4/3)³ / 4 / (12 K²) where K is large (Panter and Dite 1951).
    // K is 256 minus three exact values. Equal steps would have 30² / (12 K²), 1.7 times as much.
    const double best = 900 * 64.0 / 27 / 4 / (12 * 253.0 * 253.0);
    check(error < 1.05 * best, "the quantisation error is at most 5 % above the minimum");
    check_fails([&] { survey.add(std::vector<float>{std::nanf("")}); }, "not a number");
}

}  // namespace

// Kneser–Ney models of random text, with and without cut-offs, over few words and many: after every stored
// context and after random ones the quantised model sums to one, and its values are few.
void test_quantized_rows() {
    struct Case {
        std::uint32_t words;
        std::vector<std::uint32_t> cut_offs;
    };
    for (const Case& drawn : {Case{6, {}}, Case{60, {}}, Case{60, {0, 0, 1, 1}}, Case{400, {}}}) {
        Random random(drawn.words);
        std::vector<std::int32_t> ids;
        for (int i = 0; i < 6000; ++i) {  // some words are much more frequent than others
            const std::uint32_t word = std::min(random.below(drawn.words), random.below(drawn.words));
            ids.push_back(i % 11 == 10 ? 2 : static_cast<std::int32_t>(3 + word % (drawn.words - 3)));
        }
        ids.back() = 2;
        ModelMetadata metadata;
        metadata.vocabulary = drawn.words;
        metadata.begin = 1;
        metadata.end = 2;
        metadata.unknown = 0;
        Counts counts = count_ngrams(make_tokens(ids, metadata.vocabulary, 1, 2, false), 4, 1);
        const KneserNey estimate = estimate_kneser_ney(std::move(counts), 1, kEveryWord, drawn.cut_offs);
        const TableRows rows(estimate.levels);
        const auto exact = Model::of(rows, metadata, nullptr, {LayoutKind::small, 0}, 1);
        const auto model = Model::of(rows, metadata, nullptr, {LayoutKind::small, 8}, 2);
        check(largest_deviation(*exact, 100000) < 1e-5, "the model as it was estimated sums to one");
        check(largest_deviation(*model, 100000) < 6e-4, "the quantised model sums to one");
        const QuantizedRows one(rows, 1), three(rows, 3);
        for (std::size_t n = 2; n <= 4; ++n) {
            std::vector<float> prob(rows.size(n)), weight(rows.size(n)), other(rows.size(n));
            one.read(n, 0, prob.size(), nullptr, prob.data(), weight.data(), nullptr);
            three.read(n, 0, prob.size(), nullptr, other.data(), nullptr, nullptr);
            check(prob == other, "the result does not depend on threads");
            bool is_on_grid = true;
            for (const float w : weight) is_on_grid &= w * 1024 == std::nearbyint(w * 1024);
            check(is_on_grid, "weights are multiples of 2^-10");
            std::ranges::sort(prob);
            const auto different = std::ranges::unique(prob).begin() - prob.begin();
            check(different <= 256 || drawn.words == 6, "256 probabilities");
        }
    }
}

static void test_quantize() {
    test_packed_bits();
    test_exact();
    test_quantized();
    test_quantized_rows();
}

static const Test registered("quantize", test_quantize);

}  // namespace chainrule::tests
