#include <fstream>
#include <map>
#include <vector>

#include "base/random.hpp"
#include "checks.hpp"
#include "vectors/corpus.hpp"

namespace chainrule::tests {

namespace {

std::vector<std::int32_t> numbers_in(const std::string& file, std::size_t count) {
    std::vector<std::int32_t> into(count);
    into.resize(WordIdFile(file).read(0, into));
    return into;
}

void by_hand() {
    const Scratch scratch;
    WordIdWriter counter(scratch.name());
    for (const char* piece : {"a b", "c\tb", "\n\n \n", "a", "", " bc"}) counter.feed(piece);
    counter.finish();
    counter.finish();  // a second call has no effect
    // "a bc b | a bc": a 0, bc 1, b 2; empty sentences leave no break.
    check(counter.types() == 3 && counter.words() == 5 && counter.numbers() == 7, "sizes");
    check(counter.word(0) == "a" && counter.word(1) == "bc" && counter.word(2) == "b", "words");
    check(counter.counts() == std::vector<std::uint64_t>{2, 2, 1}, "counts");
    check(numbers_in(scratch.name(), 99) ==
              std::vector<std::int32_t>{0, 1, 2, kSentenceEnd, 0, 1, kSentenceEnd},
          "file");
    check_fails([&] { counter.feed("x"); }, "has ended");
}

// Two parts of a text, added up in any order: "b a b" and "c a c b d".
void sums_by_hand() {
    const Scratch first, second;
    WordIdWriter one(first.name()), two(second.name());
    one.feed("b a b");
    two.feed("c a c b d");
    for (WordIdWriter* writer : {&one, &two}) writer->finish();
    WordSums all;
    for (std::uint32_t part = 0; part < 3; ++part) {
        WordSums sums;
        sums.add(two.records(3, 1)[part]);
        sums.add(one.records(3, 0)[part]);
        all.add(sums.record(2));
    }
    check(all.types() == 4 && all.words() == 8 && all.highest_count() == 3, "figures of all words");
    std::string ranked;
    for (const std::uint32_t number : all.ranked(9))
        ranked.append(all.word(number)).append(std::to_string(all.count(number)));
    check(ranked == "b3a2c2", "words by count, then position: " + ranked);
    check(all.ranked(1).size() == 1, "limit");
    const WordIndex index("b\na\n");
    check(index.ids_of(two) == std::vector<std::int32_t>{-1, 1, 0, -1}, "ids");
    check_fails([] { WordIndex("b"); }, "line feed");
}

// Enough words for the table to grow several times, compared with a map.
void many_words() {
    const Scratch scratch;
    WordIdWriter counter(scratch.name());
    Random random(1);
    std::map<std::string, std::uint64_t> counts;
    std::vector<std::string> order;
    for (int i = 0; i < 200000; ++i) {
        const std::string word = std::to_string(random.below(100000)) + std::string(random.below(20), 'x');
        if (++counts[word] == 1) order.push_back(word);
        counter.feed(word + (i % 7 ? " " : "\n"));
    }
    counter.finish();
    check(counter.types() == order.size(), "types");
    bool is_same = true;
    for (std::size_t i = 0; i < order.size(); ++i) {
        is_same = is_same && counter.word(i) == order[i] && counter.counts()[i] == counts[order[i]];
    }
    check(is_same, "words and counts");
    check(numbers_in(scratch.name(), 1 << 20).size() == counter.numbers(), "the stated number of ids");
}

void empty_text() {
    const Scratch scratch;
    WordIdWriter counter(scratch.name());
    counter.finish();
    check(counter.types() == 0 && counter.numbers() == 0, "an empty text");
    check(numbers_in(scratch.name(), 5).empty(), "an empty file");
}

}  // namespace

static void test_corpus() {
    by_hand();
    sums_by_hand();
    many_words();
    empty_text();
    check_fails([] { WordIdWriter("/nowhere/at/all"); }, "cannot be written");
    check_fails([] { WordIdFile("/nowhere/at/all"); }, "cannot be read");
}

static const Test registered("corpus", test_corpus);

}  // namespace chainrule::tests
