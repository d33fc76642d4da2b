// Comparison of documents: hashes of normalized texts, and near duplicates by MinHash (Broder 1997) and
// locality-sensitive hashing.
//
// A document is compared as its words, the runs of bytes other than ASCII white space; the caller folds the
// case. A shingle is five consecutive words; a document of fewer words is one shingle.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chainrule {

inline constexpr std::size_t kShingleWords = 5;
inline constexpr std::size_t kBands = 16, kRowsPerBand = 8;

// The words separated by one space each.
std::string join_words(std::string_view text);

// Writes the 128-bit BLAKE2b hash of the words of each text to `hashes`, two numbers each.
void hash_documents(std::span<const std::string_view> texts, std::uint64_t* hashes);

// The hashes of the distinct shingles, ascending; none for a text without words.
std::vector<std::uint64_t> shingle_hashes(std::string_view text);

// Number of shingles in both documents divided by the number in either; 0 for two empty documents.
double jaccard(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b);

// One hash for each band of the MinHash signature: two documents of Jaccard similarity J agree in at least
// one with the probability 1 − (1 − J⁸)¹⁶.
std::array<std::uint64_t, kBands> band_hashes(std::span<const std::uint64_t> shingles);

// Disjoint sets of 0 … n − 1; the representative of a set is its smallest member.
class DisjointSets {
  public:
    explicit DisjointSets(std::size_t size);

    std::size_t find(std::size_t member);
    void join(std::size_t a, std::size_t b);
    std::vector<std::int64_t> representatives();

  private:
    std::vector<std::size_t> parents_;
};

// The first document of the cluster of each document. Two documents are linked if they agree in a band and
// their Jaccard similarity is at least `threshold`; clusters are the connected components. Documents without
// words are not linked.
std::vector<std::int64_t> near_duplicates(const std::vector<std::vector<std::uint64_t>>& documents,
                                          double threshold);

}  // namespace chainrule
