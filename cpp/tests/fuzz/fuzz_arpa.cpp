// Any bytes are read as an ARPA file or raise Error; a model that was read has consistent tables and is
// written and read back unchanged.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "arpa/reader.hpp"
#include "arpa/writer.hpp"
#include "driver.hpp"

namespace chainrule {

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

ArpaModel read(std::string_view text, std::size_t block, std::size_t threads) {
    std::size_t at = 0;
    const NextBlock next = [&] {
        const std::size_t from = at;
        at = std::min(at + block, text.size());
        return text.substr(from, at - from);
    };
    return read_arpa(next, threads, [](std::size_t, std::uint64_t, std::uint64_t) {});
}

void require_valid_tables(const ArpaModel& model) {
    std::size_t contexts = 1;
    for (const TableLevel& level : model.levels) {
        require(level.first.size() == contexts + 1 && level.first[0] == 0 &&
                level.first[contexts] == level.size());
        for (std::size_t c = 0; c < contexts; ++c) {
            require(level.first[c] <= level.first[c + 1]);
            for (std::size_t i = level.first[c]; i < level.first[c + 1]; ++i)
                require(level.word[i] < model.names.size() &&
                        (i == level.first[c] || level.word[i - 1] < level.word[i]));
        }
        for (const float log_prob : level.log_prob) require(log_prob <= 0);
        for (const float weight : level.log_backoff) require(weight < 99 * 2.31F);
        contexts = level.size();
    }
}

bool are_equal(const ArpaModel& a, const ArpaModel& b) {
    const auto same = [](const auto& x, const auto& y) {
        return std::equal(x.begin(), x.end(), y.begin(), y.end());
    };
    return a.names == b.names && a.has_end == b.has_end &&
           std::equal(a.levels.begin(), a.levels.end(), b.levels.begin(), b.levels.end(),
                      [&](const TableLevel& x, const TableLevel& y) {
                          return same(x.word, y.word) && same(x.first, y.first) &&
                                 same(x.log_prob, y.log_prob) && same(x.log_backoff, y.log_backoff);
                      });
}

}  // namespace

}  // namespace chainrule

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace chainrule;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        const ArpaModel model = read(text, 1 + size / 3, 1);
        require_valid_tables(model);
        std::string written;
        ArpaOutput out;
        out.write = [&](std::string_view piece) { written += piece; };
        out.progress = [](std::size_t, std::uint64_t, std::uint64_t) {};
        write_arpa(TableRows(model.levels), model.names, out);
        // <unk>, <s> and </s> are always written.
        const ArpaModel again = read(written, 1 << 16, 1);
        require(are_equal(again, read(written, 100, 2)));
        if (model.has_end) require(are_equal(again, model));
    } catch (const ArpaParseError& fault) {
        require(fault.line <= static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')) + 1);
    }
    return 0;
}

namespace chainrule::fuzz {

std::vector<std::string> seeds() {
    return {
        "\\data\\\nngram 1=5\nngram 2=2\nngram 3=1\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\t-0.5\n-0.6\t</s>\n"
        "-0.3\ta\t-0.2\n-0.4\tb\t-0.1\n\n\\2-grams:\n-0.1\t<s> a\n-0.2\ta b\t-0.05\n\n\\3-grams:\n"
        "-0.07\t<s> a b\n\n\\end\\\n",
        "\\data\\\nngram 1=5\nngram 2=1\nngram 3=0\nngram 4=1\n\\1-grams:\n-1 </s>\n-0.9 <s> -0.5\n-0.8 a "
        "-0.3\n"
        "-0.7 b -0.2\n-0.6 c -0.1\n\\2-grams:\n-0.4 b c -0.15\n\\3-grams:\n\\4-grams:\n-0.2 a b c "
        "</s>\n\\end\\\n",
        "\xEF\xBB\xBF\\data\\\r\nngram "
        "1=2\r\n\r\n\\1-grams:\r\n-1e-1\t</s>\r\n-inf\t\xC3\xA9\r\n\\end\\\r\n"};
}

std::vector<std::string> pieces() {
    return {"\n",
            "\t",
            " ",
            "-",
            "9",
            "nan",
            "inf",
            "1e-999",
            "\\end\\\n",
            "<s> ",
            "</s>",
            "\r",
            "<unk>",
            "<UNK>",
            "ngram 2=1\n",
            "-99",
            "a b c",
            "\n-0.1\ta b\n",
            "\\2-grams:\n",
            "\\3-grams:\n",
            "\n\\4-grams:\n",
            std::string(1, '\0'),
            "\xC3",
            "-0.1\tb a c\n",
            "+",
            "1e-7"};
}

}  // namespace chainrule::fuzz
