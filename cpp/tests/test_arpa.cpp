// ARPA files: numbers, reading in any order and block size, omitted contexts, parse errors, writing.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "arpa/builder.hpp"
#include "arpa/numbers.hpp"
#include "arpa/reader.hpp"
#include "arpa/writer.hpp"
#include "base/random.hpp"
#include "checks.hpp"
#include "random_tables.hpp"

namespace chainrule::tests {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string spelled(float natural) {
    char text[kMaxNumber];
    return {text, write_log10(natural, text)};
}

void test_write_numbers() {
    // Powers of ten have integer base-10 logarithms, although their natural logarithms are rounded to floats.
    for (const int power : {1, 2, 3, 7, 30, 98}) {
        const auto natural = static_cast<float>(-power * std::log(10.0));
        check(spelled(natural) == "-" + std::to_string(power), "10^-" + std::to_string(power));
    }
    check(spelled(0.0F) == "0" && spelled(-0.0F) == "0", "the logarithm of 1");
    check(spelled(-kInfinity) == "-99", "the logarithm of 0");
    check(spelled(static_cast<float>(0.25 * std::log(10.0))) == "0.25", "a weight above 1");
    Random random(3);
    for (int i = 0; i < 200000; ++i) {
        const float natural = i % 2 ? -static_cast<float>(random.below(1 << 24)) / (1 << (i % 24))
                                    : std::bit_cast<float>(0x80000000U | random.below(0x43000000));
        const std::string text = spelled(natural);
        double again = 0;
        check(read_number(text, again), text + " is a number");
        const bool is_zero = again <= kLog10Zero;
        check(is_zero || static_cast<float>(again * kLn10) == natural,
              text + " is read back as another number");
        if (failed) return;
    }
}

void test_read_numbers() {
    const std::map<std::string, double> right{{"-1.5", -1.5},
                                              {"+2", 2},
                                              {".5", .5},
                                              {"-0.5\r", -.5},
                                              {"5.", 5},
                                              {"-7E-2", -.07},
                                              {"1e-999", 0},
                                              {"-0", 0},
                                              {"0.001e-400", 0},
                                              {"-inf", -kInfinity},
                                              {"1e999", kInfinity},
                                              {"-100e99999999999999999999", -kInfinity}};
    for (const auto& [text, expected] : right) {
        double value = 17;
        check(read_number(text, value) && value == expected, text);
    }
    double value = 0;
    check(read_number("nan", value) && value != value, "nan");
    for (const char* wrong :
         {"", "+", "-", "+-1", "1_0", "-0,2", "0x10", "1e", "nan(1)", "--1", "1 ", ".", "e5"})
        check(!read_number(wrong, value), std::string(wrong) + " is no number");
}

void test_utf8() {
    for (const char* right :
         {"", "a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"})
        check(!utf8_fault(right), "UTF-8");
    const std::map<std::string, std::string> wrong{{"\x80", "invalid start byte"},
                                                   {"\xC0\x80", "invalid start byte"},
                                                   {"\xF5\x80\x80\x80", "invalid start byte"},
                                                   {"a\xC3", "unexpected end of data"},
                                                   {"\xE2\x82", "unexpected end of data"},
                                                   {"\xE0\x80\x80", "invalid continuation byte"},
                                                   {"\xED\xA0\x80", "invalid continuation byte"},
                                                   {"\xF4\x90\x80\x80", "invalid continuation byte"},
                                                   {"\xC3(", "invalid continuation byte"}};
    for (const auto& [bytes, reason] : wrong) {
        const char* const model = utf8_fault(bytes);
        check(model && reason == model, reason);
    }
}

ArpaModel read_in_blocks(const std::string& text, std::size_t block, std::size_t threads) {
    std::size_t at = 0;
    const NextBlock next = [&] {
        const std::size_t from = std::min(at, text.size());
        at = std::min(at + block, text.size());
        return std::string_view(text).substr(from, at - from);
    };
    return read_arpa(next, threads, [](std::size_t, std::uint64_t, std::uint64_t) {});
}

ArpaModel read(const std::string& text) { return read_in_blocks(text, 1 << 16, 2); }

template <class T>
bool are_equal(const UninitializedBuffer<T>& a, const UninitializedBuffer<T>& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

bool are_equal(const std::vector<TableLevel>& a, const std::vector<TableLevel>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const TableLevel& x, const TableLevel& y) {
        return are_equal(x.word, y.word) && are_equal(x.first, y.first) &&
               are_equal(x.log_prob, y.log_prob) && are_equal(x.log_backoff, y.log_backoff);
    });
}

std::string written(const std::vector<TableLevel>& levels, const std::vector<std::string>& names,
                    std::size_t threads, std::uint32_t left_out = 0xFFFFFFFF) {
    std::string text;
    ArpaOutput out;
    out.write = [&](std::string_view piece) { text += piece; };
    out.progress = [](std::size_t, std::uint64_t, std::uint64_t) {};
    out.threads = threads;
    out.left_out = left_out;
    write_arpa(TableRows(levels), names, out);
    return text;
}

// Words numbered as by the reader, so that tables are read back row by row.
std::vector<std::string> names_for(std::size_t words) {
    std::vector<std::string> names{"<unk>"};
    for (std::size_t i = 1; i + 2 < words; ++i)
        names.push_back(std::string("w").append(std::to_string(i * i)));
    names.insert(names.end(), {"<s>", "</s>"});
    return names;
}

std::vector<TableLevel> tables_for(std::size_t order, std::uint32_t words, std::uint64_t seed) {
    auto levels = random_tables(order, words, {0, 1, 8, 9, 300}, seed);
    for (TableLevel& level : levels) {
        for (std::size_t i = 0; i < level.size(); ++i) {
            if (level.word[i] == words - 2) level.log_prob[i] = -kInfinity;  // <s> is never predicted
        }
    }
    return levels;
}

// Shuffles the lines of each order.
std::string shuffled(const std::string& text, std::uint64_t seed) {
    Random random(seed);
    std::vector<std::string> lines{""};
    for (const char c : text) {
        if (c == '\n')
            lines.emplace_back();
        else
            lines.back() += c;
    }
    std::size_t from = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (!lines[i].empty() && lines[i][0] != '\\' && lines[i][0] != 'n') continue;
        const bool are_unigrams = from > 0 && lines[from - 1] == "\\1-grams:";  // 1-grams define the word ids
        for (std::size_t k = i; k > from + 1 && !are_unigrams; --k)
            std::swap(lines[k - 1], lines[from + random.below(static_cast<std::uint32_t>(k - from))]);
        from = i + 1;
    }
    std::string result;
    for (const std::string& line : lines) result += line + "\n";
    return result;
}

void test_round_trip() {
    for (std::size_t order = 1; order <= 6; ++order) {
        const std::uint32_t words = order == 3 ? 40000 : 400;  // 40000 lines are more than one piece
        const auto levels = tables_for(order, words, order);
        const auto names = names_for(words);
        const std::string text = written(levels, names, 1);
        check(text == written(levels, names, 3), "the same text by three threads");
        const ArpaModel again = read(text);
        check(again.names == names && again.has_unknown && again.has_end, "words are read back");
        check(are_equal(again.levels, levels), "tables are read back, order " + std::to_string(order));
        for (const std::size_t threads : {1, 2, 5}) {
            const ArpaModel other = read_in_blocks(shuffled(text, order), 1000, threads);
            check(are_equal(other.levels, levels), "lines in any order, by " + std::to_string(threads));
        }
    }
    const auto levels = tables_for(2, 50, 9);
    check(are_equal(read_in_blocks(written(levels, names_for(50), 1), 1, 1).levels, levels), "byte by byte");
}

// A file with omitted contexts, compared with the same n-grams computed by definition.
void test_orphans() {
    const auto whole = tables_for(4, 30, 21);
    const auto names = names_for(30);
    std::string text = written(whole, names, 1), kept_lines;
    // Every third bigram and trigram is removed, and the counts are adjusted.
    std::map<std::size_t, std::size_t> counts;
    std::size_t n = 0, number = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        const std::string line = text.substr(at, end - at);
        at = end + 1;
        if (line.ends_with("-grams:")) n = static_cast<std::size_t>(line[1] - '0');
        if (n == 0) continue;
        const bool is_entry = !line.empty() && line[0] != '\\';
        if (is_entry && (n == 2 || n == 3) && ++number % 3 == 0) continue;
        if (is_entry) ++counts[n];
        kept_lines += line + "\n";
    }
    std::string header = "\\data\\\n";
    for (std::size_t k = 1; k <= 4; ++k)
        header += "ngram " + std::to_string(k) + "=" + std::to_string(counts[k]) + "\n";
    const ArpaModel model = read(header + kept_lines);
    check(model.levels[3].size() == whole[3].size(), "no 4-gram is lost");
    for (std::size_t k = 1; k < 4; ++k) {
        const TableLevel& level = model.levels[k];
        check(level.first.size() == model.levels[k - 1].size() + 1 && level.first[0] == 0, "contexts");
        for (std::size_t c = 0; c + 1 < level.first.size(); ++c) {
            check(level.first[c] <= level.first[c + 1], "contexts are in order");
            for (std::size_t i = level.first[c] + 1; i < level.first[c + 1]; ++i)
                check(level.word[i - 1] < level.word[i], "words are in order, and once");
        }
        check(level.first[level.first.size() - 1] == level.size(), "every row has a context");
    }
    // The model does not depend on the order of lines.
    check(are_equal(read(shuffled(header + kept_lines, 5)).levels, model.levels), "in any order");
}

const std::string kTiny =
    "\\data\\\nngram 1=5\nngram 2=2\nngram 3=1\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\t-0.5\n-0.6\t</s>\n"
    "-0.3\ta\t-0.2\n-0.4\tb\t-0.1\n\n\\2-grams:\n-0.1\t<s> a\n-0.2\ta b\t-0.05\n\n\\3-grams:\n"
    "-0.07\t<s> a b\n\n\\end\\\n";

std::string with(const std::string& wrong, const std::string& right) {
    std::string text = kTiny;
    return text.replace(text.find(right), right.size(), wrong);
}

void test_parse_errors() {
    check(read(kTiny).levels.size() == 3, "the unmodified file is valid");
    const auto fails = [](const std::string& text, const std::string& part,
                          const Where& where = Where::current()) {
        for (const std::size_t block : {std::size_t{7}, std::size_t{1} << 20})
            check_fails([&] { read_in_blocks(text, block, 2); }, part, where);
    };
    fails("", "is empty");
    fails("a\nb", "has no \\data\\ in its 2 lines");
    fails(with("ngram 1=-5", "ngram 1=5"), "line 2: ngram 1=-5 is not a count");
    fails(with("ngram 3=999999999999999999", "ngram 3=1"),
          "line 20: line 4 counts 999999999999999999 3-grams");
    fails(with("ngram 2=0", "ngram 2=2"), "line 14: line 3 counts 0 2-grams, but here is one more");
    fails(with("nan\ta b", "-0.2\ta b"), "line 15: the log-probability");
    fails(with("a b\tinf", "a b\t-0.05"), "line 15: the back-off weight is not");
    fails(with("<s> a b\t-1", "<s> a b"), "line 18: a back-off weight in the highest order");
    fails(with("<s> a\t-0.05", "a b\t-0.05"), "line 15: the same n-gram as in line 14");
    fails(with("-1\ta", "-1\t<unk>"), "line 10: the same n-gram as in line 7");
    fails(with("a z\t-0.05", "a b\t-0.05"), "line 15: a word of a z is not among the 1-grams");
    fails(with("\xEF\xBB\xBF-0.2", "-0.2\ta b"), "line 15: 2 fields");
    fails(with("a\xE9 b", "a b\t"), "line 15: not UTF-8 (invalid continuation byte)");
    fails(with(std::string("a\0b", 3), "a b\t"), "line 15: contains a NUL byte");
    fails(with("-0.2 " + std::string(2 << 20, 'a'), "-0.2\ta b"), "line 15: longer than 1048576 bytes");
    fails(kTiny.substr(0, kTiny.find("\\end")), "line 19: the file ends in its 3-grams");
    // A repeated orphan: the bigram a b is no longer listed.
    fails(
        "\\data\\\nngram 1=2\nngram 2=0\nngram 3=2\n\\1-grams:\n-1 a\n-1 b\n\\2-grams:\n\\3-grams:\n-1 a b "
        "a\n-1 a "
        "b a\n\\end\\\n",
        "line 11: the same n-gram as in line 10");
}

void test_omitted_word() {
    const auto levels = tables_for(4, 60, 4);
    const auto names = names_for(60);
    const std::string all = written(levels, names, 2), some = written(levels, names, 2, 7);
    // By definition: the lines without that word, and their counts.
    const std::string word = names[7];
    std::string expected;
    std::map<std::size_t, std::size_t> counts;
    std::size_t n = 0;
    for (std::size_t at = 0; at < all.size();) {
        const std::size_t end = all.find('\n', at);
        const std::string line = all.substr(at, end - at);
        at = end + 1;
        if (line.ends_with("-grams:")) n = static_cast<std::size_t>(line[1] - '0');
        std::string padded = " " + line + " ";
        std::replace(padded.begin(), padded.end(), '\t', ' ');
        if (padded.find(" " + word + " ") != std::string::npos) continue;
        if (n && !line.empty() && line[0] != '\\') ++counts[n];
        if (n) expected += line + "\n";
    }
    check(some.ends_with("\n" + expected) && some != all, "n-grams with a word are left out");
    for (const auto& [k, count] : counts)
        check(
            some.find("ngram " + std::to_string(k) + "=" + std::to_string(count) + "\n") != std::string::npos,
            "and not counted");
}

}  // namespace

static void test_arpa() {
    test_write_numbers();
    test_read_numbers();
    test_utf8();
    test_round_trip();
    test_orphans();
    test_parse_errors();
    test_omitted_word();
}

static const Test registered("arpa", test_arpa);

}  // namespace chainrule::tests
