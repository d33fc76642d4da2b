#include "text/duplicates.hpp"

#include <algorithm>
#include <numeric>

#include "text/blake2b/blake2b.hpp"

namespace chainrule {

namespace {

constexpr bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Calls on_word(word) for each word.
template <class OnWord>
void for_each_word(std::string_view text, const OnWord& on_word) {
    for (std::size_t at = 0; at < text.size();) {
        if (is_space(text[at])) {
            ++at;
            continue;
        }
        const std::size_t begin = at;
        while (at < text.size() && !is_space(text[at])) ++at;
        on_word(text.substr(begin, at - begin));
    }
}

// A bijection of 64-bit numbers in which each input bit changes about half of the output bits (the finalizer
// of SplitMix64, Steele et al. 2014).
constexpr std::uint64_t mix_bits(std::uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ x >> 27) * 0x94D049BB133111EBULL;
    return x ^ x >> 31;
}

// FNV-1a with a final mix.
std::uint64_t hash_word(std::string_view word) {
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    for (const char c : word) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    return mix_bits(hash);
}

// The hash functions x → a x + b mod 2⁶⁴ of the signature.
struct HashFamily {
    std::array<std::uint64_t, kBands * kRowsPerBand> factors, offsets;
};

constexpr HashFamily make_family() {
    HashFamily family{};
    std::uint64_t state = 0;
    for (std::size_t i = 0; i < family.factors.size(); ++i) {
        family.factors[i] = mix_bits(state += 0x9E3779B97F4A7C15ULL) | 1;
        family.offsets[i] = mix_bits(state += 0x9E3779B97F4A7C15ULL);
    }
    return family;
}

constexpr HashFamily kFamily = make_family();

bool is_similar(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b, double threshold) {
    const double smaller = static_cast<double>(std::min(a.size(), b.size()));
    if (smaller < threshold * static_cast<double>(std::max(a.size(), b.size()))) return false;
    return jaccard(a, b) >= threshold;
}

// Links the documents of one group, which agree in a band. Documents that are linked already are not
// compared: that does not change the clusters.
void link_group(std::span<const std::size_t> group, const std::vector<std::vector<std::uint64_t>>& documents,
                double threshold, DisjointSets& sets) {
    std::vector<std::vector<std::size_t>> clusters;  // of the documents of the group so far
    for (const std::size_t document : group) {
        std::vector<std::size_t> joined{document};
        std::vector<std::vector<std::size_t>> others;
        for (std::vector<std::size_t>& cluster : clusters) {
            const auto matches = [&](std::size_t member) {
                return is_similar(documents[document], documents[member], threshold);
            };
            if (sets.find(cluster.front()) != sets.find(document)) {
                if (std::none_of(cluster.begin(), cluster.end(), matches)) {
                    others.push_back(std::move(cluster));
                    continue;
                }
                sets.join(cluster.front(), document);
            }
            if (cluster.size() > joined.size()) std::swap(cluster, joined);
            joined.insert(joined.end(), cluster.begin(), cluster.end());
        }
        others.push_back(std::move(joined));
        clusters = std::move(others);
    }
}

}  // namespace

std::string join_words(std::string_view text) {
    std::string words;
    words.reserve(text.size());
    for_each_word(text, [&](std::string_view word) {
        if (!words.empty()) words += ' ';
        words += word;
    });
    return words;
}

void hash_documents(std::span<const std::string_view> texts, std::uint64_t* hashes) {
    std::string words;
    std::vector<std::size_t> ends;
    for (const std::string_view text : texts) {
        const std::size_t begin = words.size();
        for_each_word(text, [&](std::string_view word) {
            if (words.size() > begin) words += ' ';
            words += word;
        });
        ends.push_back(words.size());
    }
    std::vector<std::string_view> normalized;
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
        normalized.push_back(std::string_view(words).substr(begin, end - begin));
        begin = end;
    }
    choose_blake2b_128("auto")(normalized.data(), normalized.size(), hashes);
}

std::vector<std::uint64_t> shingle_hashes(std::string_view text) {
    std::vector<std::uint64_t> words;
    for_each_word(text, [&](std::string_view word) { words.push_back(hash_word(word)); });
    if (words.empty()) return {};
    const std::size_t length = std::min(words.size(), kShingleWords);
    std::vector<std::uint64_t> shingles;
    shingles.reserve(words.size() - length + 1);
    for (std::size_t first = 0; first + length <= words.size(); ++first) {
        std::uint64_t hash = 0;
        for (std::size_t i = 0; i < length; ++i) hash = mix_bits(hash + words[first + i]);
        shingles.push_back(hash);
    }
    std::sort(shingles.begin(), shingles.end());
    shingles.erase(std::unique(shingles.begin(), shingles.end()), shingles.end());
    return shingles;
}

double jaccard(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
    std::size_t both = 0;
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
        both += a[i] == b[j];
        const bool advances_a = a[i] <= b[j], advances_b = b[j] <= a[i];
        i += advances_a;
        j += advances_b;
    }
    const std::size_t either = a.size() + b.size() - both;
    return either ? static_cast<double>(both) / static_cast<double>(either) : 0.0;
}

std::array<std::uint64_t, kBands> band_hashes(std::span<const std::uint64_t> shingles) {
    std::array<std::uint64_t, kBands * kRowsPerBand> signature;
    signature.fill(~std::uint64_t{0});
    for (const std::uint64_t shingle : shingles)
        for (std::size_t i = 0; i < signature.size(); ++i)
            signature[i] = std::min(signature[i], shingle * kFamily.factors[i] + kFamily.offsets[i]);
    std::array<std::uint64_t, kBands> bands;
    for (std::size_t band = 0; band < kBands; ++band) {
        bands[band] = mix_bits(band + 1);
        for (std::size_t row = 0; row < kRowsPerBand; ++row)
            bands[band] = mix_bits(bands[band] ^ signature[band * kRowsPerBand + row]);
    }
    return bands;
}

DisjointSets::DisjointSets(std::size_t size) : parents_(size) {
    std::iota(parents_.begin(), parents_.end(), std::size_t{0});
}

std::size_t DisjointSets::find(std::size_t member) {
    while (parents_[member] != member) {
        parents_[member] = parents_[parents_[member]];
        member = parents_[member];
    }
    return member;
}

void DisjointSets::join(std::size_t a, std::size_t b) {
    a = find(a);
    b = find(b);
    parents_[std::max(a, b)] = std::min(a, b);
}

std::vector<std::int64_t> DisjointSets::representatives() {
    std::vector<std::int64_t> result(parents_.size());
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<std::int64_t>(find(i));
    return result;
}

std::vector<std::int64_t> near_duplicates(const std::vector<std::vector<std::uint64_t>>& documents,
                                          double threshold) {
    DisjointSets sets(documents.size());
    std::vector<std::array<std::uint64_t, kBands>> bands;
    bands.reserve(documents.size());
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < documents.size(); ++i) {
        bands.push_back(band_hashes(documents[i]));
        if (!documents[i].empty()) order.push_back(i);
    }
    for (std::size_t band = 0; band < kBands; ++band) {
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return std::pair(bands[a][band], a) < std::pair(bands[b][band], b);
        });
        for (std::size_t first = 0, last = 0; first < order.size(); first = last) {
            while (last < order.size() && bands[order[last]][band] == bands[order[first]][band]) ++last;
            if (last - first > 1)
                link_group(std::span(order).subspan(first, last - first), documents, threshold, sets);
        }
    }
    return sets.representatives();
}

}  // namespace chainrule
