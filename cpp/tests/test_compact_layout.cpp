// The layout "small": compared with the tables it is built from, and with malicious files.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "checks.hpp"
#include "ngram/format/compact_layout.hpp"

namespace chainrule::tests {

namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

struct Model {
    std::vector<TableLevel> levels;
    FileMetadata metadata;
};

template <class T>
UninitializedBuffer<T> to_numpy_array(const std::vector<T>& values) {
    UninitializedBuffer<T> result(values.size());
    std::copy(values.begin(), values.end(), result.begin());
    return result;
}

// `count` distinct words, ascending.
std::vector<std::uint32_t> draw_words(Random& random, std::uint32_t vocabulary, std::uint32_t count) {
    std::vector<std::uint32_t> words;
    if (count == 1) return {random.below(vocabulary)};
    if (count == 0) return {};
    for (std::uint32_t w = 0; w < vocabulary; ++w)
        if (random.below(vocabulary - w) < count - words.size()) words.push_back(w);
    return words;
}

float draw_log(Random& random, std::uint32_t different) {
    const std::uint32_t kind = random.below(40);
    if (kind == 0) return kNone;
    if (kind == 1) return random.below(2) ? 0.0F : -0.0F;
    return -1e-3F - 25.0F * static_cast<float>(random.below(different)) / static_cast<float>(different);
}

// A model whose contexts have 0, 1, 2, 64 or `many` continuations; `different`: number of distinct values per
// column.
Model draw_model(std::uint64_t seed, std::size_t order, std::uint32_t vocabulary, std::uint32_t many,
                 std::uint32_t different) {
    Random random(seed);
    Model model;
    model.metadata.layout = LayoutKind::small;
    model.metadata.model.vocabulary = vocabulary;
    for (std::size_t n = 1; n <= order; ++n) {
        std::vector<std::uint32_t> words, first{0};
        const std::size_t contexts = n == 1 ? 1 : model.levels.back().size();
        for (std::size_t i = 0; i < contexts; ++i) {
            const std::uint32_t kind = random.below(500);
            std::uint32_t count = kind < 250 ? 1 : kind < 400 ? 0 : kind < 490 ? 2 : kind < 498 ? 64 : many;
            if (n == 1 || words.size() > 12000) count = n == 1 ? vocabulary : random.below(2);
            const auto drawn = draw_words(random, vocabulary, std::min(count, vocabulary));
            words.insert(words.end(), drawn.begin(), drawn.end());
            first.push_back(static_cast<std::uint32_t>(words.size()));
        }
        TableLevel level;
        std::vector<float> prob(words.size()), backoff(n < order ? words.size() : 0);
        for (float& value : prob) value = draw_log(random, different);
        for (float& value : backoff) value = random.below(3) ? draw_log(random, different) : 0.5F;
        level.word = to_numpy_array(words);
        level.first = to_numpy_array(first);
        level.log_prob = to_numpy_array(prob);
        level.log_backoff = to_numpy_array(backoff);
        model.metadata.sizes.push_back(words.size());
        model.levels.push_back(std::move(level));
    }
    return model;
}

UninitializedBuffer<char> image_of(const Model& model, std::size_t threads) {
    const TableRows rows(model.levels);
    return model_image(model.metadata, compact_sections(rows, model.metadata, threads), threads);
}

bool is_same(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

Children children_of(const Model& model, std::size_t n, std::size_t row) {
    if (n == model.levels.size()) return {};
    const UninitializedBuffer<std::uint32_t>& first = model.levels[n].first;
    return {first[row], first[row + 1]};
}

bool is_row(const Model& model, std::size_t n, std::uint32_t row, const Lookup& lookup) {
    const TableLevel& level = model.levels[n - 1];
    const Children expected = children_of(model, n, row);
    const float backoff = level.log_backoff.size() ? level.log_backoff[row] : 0;
    const bool has_children = lookup.children.size() == expected.size() &&
                              (expected.size() == 0 || lookup.children.from == expected.from);
    return lookup.is_present && lookup.row == row && is_same(lookup.log_prob, level.log_prob[row]) &&
           is_same(lookup.log_backoff, backoff) && has_children;
}

// Every row by number and by word, and absent words.
void check_all_rows(const Model& model, const CompactLayout& layout, const std::string& what) {
    std::size_t wrong = 0;
    for (std::size_t i = 1; i < layout.by_probability().size(); ++i)
        wrong += model.levels[0].log_prob[layout.by_probability()[i - 1]] <
                 model.levels[0].log_prob[layout.by_probability()[i]];
    for (std::uint32_t w = 0; w < model.levels[0].size(); ++w) wrong += !is_row(model, 1, w, layout.first(w));
    for (std::size_t n = 1; n <= model.levels.size(); ++n) {
        for (std::uint32_t row = 0; row < model.levels[n - 1].size(); ++row) {
            std::uint32_t word = 0;
            wrong += !is_row(model, n, row, layout.at(n, row, word));
            wrong += word != model.levels[n - 1].word[row];
            if (n == model.levels.size()) continue;
            const Children in = children_of(model, n, row);
            const TableLevel& next = model.levels[n];
            layout.prefetch(n + 1, in, word);
            layout.prefetch_row(n + 1, in, word);
            std::uint32_t absent = 0;  // an absent word before, between or after the stored ones
            for (std::uint32_t i = in.from; i < in.to; ++i) {
                wrong += !is_row(model, n + 1, i, layout.find(n + 1, in, next.word[i]));
                if (absent < next.word[i]) wrong += layout.find(n + 1, in, absent).is_present;
                absent = next.word[i] + 1;
            }
            if (absent < model.metadata.model.vocabulary) wrong += layout.find(n + 1, in, absent).is_present;
        }
    }
    check(wrong == 0, what + ": " + std::to_string(wrong) + " answers are not those of the tables");
}

void test_rows_equal_the_tables() {
    for (std::size_t order = 1; order <= 6; ++order) {
        for (const std::uint32_t different : {3U, 900U, 1U << 24}) {
            const Model model = draw_model(order + different, order, 5600, 5000, different);
            const std::string what =
                "order " + std::to_string(order) + ", values " + std::to_string(different);
            check_all_rows(model, CompactLayout(ModelFile::of(image_of(model, 1))), what);
        }
    }
    check_all_rows(draw_model(7, 3, 1, 1, 5),
                   CompactLayout(ModelFile::of(image_of(draw_model(7, 3, 1, 1, 5), 1))), "one word");
}

void test_threads_write_the_same_bytes() {
    for (const std::uint32_t bits : {0U, 8U}) {
        Model model = draw_model(5, 4, 5600, 5000, 1U << 24);
        model.metadata.bits = bits;
        const UninitializedBuffer<char> one = image_of(model, 1), three = image_of(model, 3);
        check(one.size() == three.size() && std::memcmp(one.data(), three.data(), one.size()) == 0,
              "one thread and three write the same bytes");
    }
}

// A few weights take few bits: the sizes documented in the header of the layout.
void test_sizes() {
    const Model model = draw_model(3, 3, 5600, 5000, 200);
    const CompactLayout layout(ModelFile::of(image_of(model, 1)));
    const auto bytes_of = [&](CompactPart part, std::size_t n) {
        return layout.file().section(compact_section(part, n)).size();
    };
    // 200 values, ±0, −inf and 0.5 are at most 256 and more than 128: 8 bits each, and 13 bits of a word.
    const std::uint64_t rows = model.metadata.sizes[1], blocks = (rows + 15) / 16;
    check(bytes_of(CompactPart::records, 2) == (rows * (13 + 8 + 8) + 63) / 64 * 8 + 16, "29 bits a row");
    check(bytes_of(CompactPart::samples, 2) == 4 * (blocks + 1), "2 bits a row");
    check(bytes_of(CompactPart::children, 2) == (model.metadata.sizes[2] + 16 * blocks + 63) / 64 * 8 + 16,
          "1 bit a row and 1 a continuation");
}

// The same rows and words, and at most 256 distinct values.
void test_quantized_model() {
    Model model = draw_model(13, 4, 5600, 5000, 1U << 24);
    model.metadata.bits = 8;
    const CompactLayout layout(ModelFile::of(image_of(model, 2)));
    std::vector<std::uint32_t> distinct;
    bool is_close = true, is_exact = true;
    for (std::uint32_t row = 0; row < model.levels[2].size(); ++row) {
        std::uint32_t word = 0;
        const Lookup lookup = layout.at(3, row, word);
        const float expected = model.levels[2].log_prob[row];
        is_exact &= word == model.levels[2].word[row];
        if (expected == kNone || expected == 0) is_exact &= is_same(lookup.log_prob, expected);
        // Spread evenly over 25, 252 values are 0.1 apart.
        else
            is_close &= std::abs(lookup.log_prob - expected) <= 0.1;
        distinct.push_back(std::bit_cast<std::uint32_t>(lookup.log_prob));
    }
    std::ranges::sort(distinct);
    distinct.erase(std::ranges::unique(distinct).begin(), distinct.end());
    check(is_exact, "words, zeros and infinities are exact");
    check(is_close, "other values are close");
    check(distinct.size() > 200 && distinct.size() <= 256, "256 values and no more");
    check(is_row(model, 1, 17, layout.first(17)), "order 1 is exact");
    model.metadata.bits = 7;
    check_fails([&] { image_of(model, 1); }, "bits is 7");
}

// Queries much of the content of a file, whatever it is.
void ask(const CompactLayout& layout) {
    for (const std::uint32_t w : layout.by_probability()) check(w < layout.size(1), "words are valid ids");
    const std::vector<std::uint64_t>& sizes = layout.file().metadata().sizes;
    Random random(3);
    std::uint32_t word = 0;
    float sum = 0;
    for (std::uint32_t w = 0; w < sizes[0]; ++w) {
        Lookup lookup = layout.first(w);
        for (std::size_t n = 2; n <= sizes.size() && lookup.children.size(); ++n) {
            const Children in = lookup.children;
            check(in.from <= in.to && in.to <= sizes[n - 1], "children are rows");
            lookup = layout.at(n, in.from + random.below(in.size()), word);
            check(word < sizes[0], "a word is one of the vocabulary");
            layout.prefetch(n, in, word);
            layout.prefetch_row(n, in, word);
            sum += layout.find(n, in, random.below(static_cast<std::uint32_t>(sizes[0]))).log_prob;
        }
    }
    for (std::size_t n = 1; n <= sizes.size(); ++n)
        for (std::uint32_t row = 0; row < sizes[n - 1]; row += 1 + row / 97)
            sum += layout.at(n, row, word).log_backoff;
    check(sum == sum || sum != sum, "any content");
}

// Files with valid checksums and invalid content.
void test_hostile() {
    const Model model = draw_model(17, 4, 300, 250, 1000);
    const TableRows rows(model.levels);
    const std::vector<Section> sections = compact_sections(rows, model.metadata, 1);
    Random random(23);
    int refused = 0;
    for (std::size_t s = 0; s < sections.size(); ++s) {
        for (const int kind : {0, 1, 2}) {  // zeros, ones, random bytes
            std::vector<Section> changed = sections;
            changed[s].fill = [&random, kind](std::uint64_t, std::uint64_t size, char* into) {
                for (std::uint64_t i = 0; i < size; ++i)
                    into[i] = static_cast<char>(kind == 0 ? 0 : kind == 1 ? 255 : random.next());
            };
            Scratch scratch;
            write_model(scratch.name(), model.metadata, changed, 1);
            try {
                ask(CompactLayout(ModelFile::open(scratch.name(), true)));
            } catch (const Error&) {
                ++refused;
            }
        }
        std::vector<Section> shorter = sections;
        shorter[s].size -= 1;
        check_fails([&] { CompactLayout(ModelFile::of(model_image(model.metadata, shorter, 1))); },
                    "damaged");
        shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(s));
        check_fails([&] { CompactLayout(ModelFile::of(model_image(model.metadata, shorter, 1))); },
                    "damaged");
    }
    check(refused > 0 && refused < 3 * static_cast<int>(sections.size()), "some are rejected, some are read");
}

// A file verified on access: results are correct, or Error is thrown.
void test_flipped_bit() {
    const Model model = draw_model(19, 4, 5600, 5000, 1U << 24);
    const TableRows rows(model.levels);
    Scratch scratch;
    write_model(scratch.name(), model.metadata, compact_sections(rows, model.metadata, 2), 2);
    check_all_rows(model, CompactLayout(ModelFile::open(scratch.name(), false, 0)), "verified on access");
    const std::uint64_t bytes = ModelFile::open(scratch.name(), false, 0)->bytes();
    for (std::uint64_t at = bytes - 40; at > 65536; at -= 65536) {
        std::fstream file(scratch.name(), std::ios::in | std::ios::out | std::ios::binary);
        char byte = 0;
        file.seekg(static_cast<std::streamoff>(at)).get(byte);
        file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte ^ 16));
        file.close();
        check_fails(
            [&] {
                check_all_rows(model, CompactLayout(ModelFile::open(scratch.name(), false, 0)),
                               "one bit off");
            },
            "checksum");
        file.open(scratch.name(), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(at)).put(byte);
    }
}

}  // namespace

static void test_compact_layout() {
    test_rows_equal_the_tables();
    test_threads_write_the_same_bytes();
    test_sizes();
    test_quantized_model();
    test_hostile();
    test_flipped_bit();
}

static const Test registered("compact_layout", test_compact_layout);

}  // namespace chainrule::tests
