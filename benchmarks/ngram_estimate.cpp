// Estimates modified Kneser–Ney from a plain text in memory with the C++ engine only, comparable to `lmplz`
// writing to /dev/null. Compiled and timed by benchmarks/ngram.py.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "ngram/build/count.hpp"
#include "ngram/build/kneser_ney.hpp"
#include "text/encode.hpp"

namespace chainrule {

// Words are numbered from 1 by descending count; 0 is <unk>, the last two are <s> and </s>.
std::uint64_t rows_of(const std::string& file, std::size_t order, std::size_t threads) {
    const PlainText text({file});
    std::optional<TextScan> scan = scan_text(text, {}, {}, threads);
    if (!scan) throw Error(file + " is not plain text");
    const std::vector<std::uint32_t>& order = scan->words().order;
    const auto V = static_cast<std::uint32_t>(order.size() + 3);
    std::vector<std::int32_t> id_of_word(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) id_of_word[order[i]] = static_cast<std::int32_t>(i + 1);
    const ScannedIds encoded = scan->encode(id_of_word, 0, static_cast<std::int32_t>(V - 1), threads);
    const std::span<const std::int32_t> ids(encoded.ids.data(), encoded.ids.size());
    Counts counts = count_ngrams(make_tokens(ids, V, V - 2, V - 1, false), order, threads);
    std::uint64_t rows = 0;
    for (const TableLevel& level : estimate_kneser_ney(std::move(counts), threads).levels)
        rows += level.size();
    return rows;
}

}  // namespace chainrule

int main(int count, char** arguments) {
    try {
        if (count != 4) throw chainrule::Error("ngram_estimate TEXT ORDER THREADS");
        const std::uint64_t rows = chainrule::rows_of(arguments[1], std::strtoul(arguments[2], nullptr, 10),
                                                      std::strtoul(arguments[3], nullptr, 10));
        std::printf("%llu\n", static_cast<unsigned long long>(rows));
        return 0;
    } catch (const chainrule::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
