#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checks.hpp"
#include "text/blake2b/blake2b.hpp"
#include "text/duplicates.hpp"

namespace chainrule::tests {

namespace {

// Digests of 16 bytes; expected values from Python's hashlib.
void hashes() {
    const std::vector<std::string_view> texts{"", "a", "the cat sees a dog"};
    const std::vector<std::uint64_t> expected{0x40BDEFD94169E6CA, 0x7076A68E75884D4E, 0x7F8773936E5EC327,
                                              0x7E49464E4662E529, 0x73B1FF5D870A9DB8, 0x738BE494DC40FD19};
    for (const std::string name : {"none", "avx2", "avx512", "auto"}) {
        Blake2b hash = nullptr;
        try {
            hash = choose_blake2b_128(name);
        } catch (const ArgumentError&) {
            continue;  // this processor does not have them
        }
        std::vector<std::uint64_t> result(6);
        hash(texts.data(), texts.size(), result.data());
        check(result == expected, name + ": digests of 16 bytes");
    }
    const std::vector<std::string_view> documents{"", "a", " the cat\tsees \n\n a dog\r\n"};
    std::vector<std::uint64_t> result(6);
    hash_documents(documents, result.data());
    check(result == expected, "white space is not compared");
    check(join_words(documents[2]) == "the cat sees a dog", "words");
}

void shingles() {
    check(shingle_hashes(" \n").empty(), "no words");
    check(shingle_hashes("a b c").size() == 1, "fewer than five words");
    check(shingle_hashes("a b c d e").size() == 1, "five words");
    check(shingle_hashes("a b c d e f").size() == 2, "six words");
    check(shingle_hashes("a a a a a a a").size() == 1, "equal shingles");
    check(shingle_hashes("ab c") != shingle_hashes("a bc"), "words are not concatenated");
    const auto a = shingle_hashes("a b c d e f"), b = shingle_hashes("b c d e f g");
    check_close(jaccard(a, b), 1.0 / 3.0, 1e-15, "one shingle of three");
    check_close(jaccard(a, a), 1.0, 0.0, "equal documents");
    check_close(jaccard({}, {}), 0.0, 0.0, "empty documents");
}

// The share of bands that agree estimates the eighth power of the similarity.
void bands() {
    std::size_t agreeing = 0, all = 0;
    double expected = 0;
    for (int n = 0; n < 200; ++n) {
        std::string a, b;
        for (int i = 0; i < 100; ++i) {
            const std::string word = "w" + std::to_string(n) + "x" + std::to_string(i) + " ";
            a += word;
            b += i == 50 ? "other " : word;
        }
        const auto x = shingle_hashes(a), y = shingle_hashes(b);
        const auto p = band_hashes(x), q = band_hashes(y);
        for (std::size_t band = 0; band < kBands; ++band, ++all) agreeing += p[band] == q[band];
        const double j = jaccard(x, y);
        expected += j * j * j * j * j * j * j * j;
    }
    check_close(static_cast<double>(agreeing) / static_cast<double>(all), expected / 200, 0.03, "bands");
}

void clusters() {
    std::vector<std::vector<std::uint64_t>> documents;
    for (const std::string_view text :
         {"one two three four five six", "", "x y z", "one two three four five six", "X Y Z", "x y z", "",
          "one two three four five seven"})
        documents.push_back(shingle_hashes(text));
    check(near_duplicates(documents, 0.8) == std::vector<std::int64_t>{0, 1, 2, 0, 4, 2, 6, 7}, "clusters");
    DisjointSets sets(5);
    sets.join(4, 3);
    sets.join(1, 3);
    check(sets.representatives() == std::vector<std::int64_t>{0, 1, 2, 1, 1}, "smallest members");
}

void run() {
    hashes();
    shingles();
    bands();
    clusters();
}

const Test test("duplicates", run);

}  // namespace

}  // namespace chainrule::tests
