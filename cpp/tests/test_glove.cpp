#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "checks.hpp"
#include "vectors/cooccurrence.hpp"
#include "vectors/corpus.hpp"
#include "vectors/glove.hpp"

namespace chainrule::tests {

namespace {

using Numbers = std::vector<std::int32_t>;

Numbers random_text(std::size_t size, std::uint32_t words) {
    Random random(11);
    Numbers text;
    for (std::size_t i = 0; i < size; ++i) {
        const bool is_end = random.below(12) == 0 && !text.empty() && text.back() != kSentenceEnd;
        text.push_back(is_end ? kSentenceEnd : static_cast<std::int32_t>(random.below(words)));
    }
    text.push_back(kSentenceEnd);
    return text;
}

// Counts each pair directly.
std::map<std::pair<int, int>, double> brute_force(const Numbers& text, const Numbers& number_of,
                                                  std::size_t window) {
    std::map<std::pair<int, int>, double> counts;
    Numbers sentence;
    for (const std::int32_t id : text) {
        if (id != kSentenceEnd) {
            const std::int32_t number = number_of[static_cast<std::size_t>(id)];
            if (number >= 0) sentence.push_back(number);
            continue;
        }
        for (std::size_t a = 0; a < sentence.size(); ++a) {
            for (std::size_t b = 0; b < sentence.size(); ++b) {
                const std::size_t distance = a > b ? a - b : b - a;
                if (distance == 0 || distance > window) continue;
                counts[{sentence[a], sentence[b]}] += 1 / static_cast<double>(distance);
            }
        }
        sentence.clear();
    }
    return counts;
}

struct Counted {
    std::vector<Record> records;
    std::uint64_t runs = 0;
};

Counted count(const std::string& file, const std::string& out, const Numbers& number_of,
              std::uint64_t numbers, std::size_t words, const CooccurrenceConfig& config) {
    Cooccurrence counting(config, file, numbers, number_of, words, out);
    while (counting.run(0.001)) {
    }
    Counted actual{std::vector<Record>(counting.records()), counting.runs()};
    std::ifstream in(out, std::ios::binary);
    in.read(reinterpret_cast<char*>(actual.records.data()),
            static_cast<std::streamsize>(actual.records.size() * sizeof(Record)));
    check(static_cast<bool>(in) && in.peek() == EOF, "the stated number of records");
    return actual;
}

// Compared with brute force for several memory limits and thread counts.
void cooccurrences() {
    constexpr std::size_t kWords = 300;
    const Numbers text = random_text(20000, kWords);
    Numbers number_of;
    for (std::size_t i = 0; i < kWords; ++i)
        number_of.push_back(i % 10 == 9 ? -1 : static_cast<std::int32_t>(i));
    const Scratch numbers, out;
    std::ofstream(numbers.name(), std::ios::binary)
        .write(reinterpret_cast<const char*>(text.data()), static_cast<std::streamsize>(text.size() * 4));
    for (const std::size_t window : {1, 5, 30}) {
        const auto expected = brute_force(text, number_of, window);
        for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{100000}, std::uint64_t{1} << 26}) {
            for (const std::size_t threads : {1, 3, 7}) {
                const CooccurrenceConfig config{window, bytes, threads, 5};
                const Counted actual =
                    count(numbers.name(), out.name(), number_of, text.size(), kWords, config);
                const std::string what =
                    "window " + std::to_string(window) + ", bytes " + std::to_string(bytes);
                check(actual.records.size() == expected.size(), what + ": number of pairs");
                check(actual.runs > 0 || bytes > 1, what + ": runs on disk");
                check(actual.runs == 0 || bytes < 1 << 26, what + ": no runs on disk");
                const bool is_same =
                    std::all_of(actual.records.begin(), actual.records.end(), [&](const Record& r) {
                        const auto counts = expected.find({r.i, r.j});
                        return counts != expected.end() &&
                               std::abs(static_cast<double>(r.x) - counts->second) < 1e-4;
                    });
                check(is_same, what + ": counts");
            }
        }
    }
}

std::string content_of(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// The parts of a text, counted by themselves and added up, give the file of the whole text.
void sums_of_parts() {
    constexpr std::uint32_t kWords = 300;
    constexpr std::size_t kRanges = 3;
    const Numbers text = random_text(20000, kWords);
    Numbers number_of(kWords);
    for (std::size_t i = 0; i < kWords; ++i) number_of[i] = static_cast<std::int32_t>(i);
    const Scratch numbers, whole, part, sum;
    const auto write = [&](std::size_t first, std::size_t last) {
        std::ofstream(numbers.name(), std::ios::binary)
            .write(reinterpret_cast<const char*>(text.data() + first),
                   static_cast<std::streamsize>((last - first) * 4));
    };
    for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{100000}, std::uint64_t{1} << 26}) {
        CooccurrenceConfig config{30, bytes, 1, 5, 0};
        write(0, text.size());
        count(numbers.name(), whole.name(), number_of, text.size(), kWords, config);
        std::map<std::uint32_t, std::vector<std::string>> counts;
        config.ranges = kRanges;
        for (std::size_t first = 0, last = 0; first < text.size(); first = last) {
            last = std::min(first + 6000, text.size());
            while (text[last - 1] != kSentenceEnd) ++last;
            write(first, last);
            Cooccurrence counting(config, numbers.name(), last - first, number_of, kWords, part.name());
            while (counting.run(0.001)) {
            }
            const std::string content = content_of(part.name());
            std::size_t begin = 0;
            for (const auto& [range, size] : counting.parts()) {
                counts[range].push_back(content.substr(begin, size));
                begin += size;
            }
            check(begin == content.size(), "the stated sizes");
        }
        std::string records;
        for (std::uint32_t range = 0; range < kRanges; ++range) {
            CooccurrenceSum adding(config, sum.name());
            for (const std::string& piece : counts[range]) adding.add(piece);
            const std::uint64_t written = adding.finish();
            check(written * sizeof(Record) == content_of(sum.name()).size(), "the stated number of records");
            records += content_of(sum.name());
        }
        check(records == content_of(whole.name()), "sums of parts, bytes " + std::to_string(bytes));
    }
}

// The cost decreases; records with invalid words and missing files are rejected.
void learning() {
    constexpr std::int32_t kWords = 40;
    std::vector<Record> records;
    Random random(2);
    for (std::int32_t i = 0; i < kWords; ++i) {
        for (std::int32_t j = 0; j < kWords; ++j) {
            records.push_back({i, j, ((i ^ j) & 1 ? 0.5F : 20.0F) + static_cast<float>(random.below(8)) / 8});
        }
    }
    const Scratch file;
    std::ofstream(file.name(), std::ios::binary)
        .write(reinterpret_cast<const char*>(records.data()),
               static_cast<std::streamsize>(records.size() * sizeof(Record)));
    for (const std::size_t dimensions : {1, 15, 16, 40}) {
        for (const std::size_t threads : {1, 3}) {
            GloveConfig config;
            config.dimensions = dimensions;
            config.threads = threads;
            config.epochs = 2;
            Glove few(config, file.name(), records.size(), kWords);
            while (few.run(0.001)) {
            }
            config.epochs = 40;
            Glove many(config, file.name(), records.size(), kWords);
            while (many.run(0.001)) {
            }
            check(many.progress().pairs == records.size() * 40, "all pairs are processed");
            check(many.progress().cost < 0.5 * few.progress().cost, "the cost falls");
            std::vector<float> actual(static_cast<std::size_t>(kWords) * dimensions);
            many.result(actual);
            check(std::all_of(actual.begin(), actual.end(), [](float x) { return std::isfinite(x); }),
                  "vectors are finite");
        }
    }
    check_fails([&] { Glove(GloveConfig{}, file.name(), records.size(), kWords - 1).run(9); },
                "of this vocabulary");
    check_fails([&] { Glove(GloveConfig{}, file.name(), records.size() + 9, kWords).run(9); }, "truncated");
    check_fails([&] { Glove(GloveConfig{}, "/nowhere/at/all", 1, kWords); }, "cannot be read");
}

void mixing() {
    Random random(4);
    bool is_same = true;
    for (int i = 0; i < 1000; ++i) {
        const std::uint64_t pair = static_cast<std::uint64_t>(random.next()) << 32 | random.next();
        is_same = is_same && unmixed(mixed(pair, 77), 77) == pair;
    }
    check(is_same, "mixing is invertible");
}

}  // namespace

static void test_glove() {
    mixing();
    cooccurrences();
    sums_of_parts();
    learning();
}

static const Test registered("glove", test_glove);

}  // namespace chainrule::tests
