// Python bindings of the comparison of documents. A batch of documents is their bytes, one after the other,
// and the position of the end of each.
#include "text/duplicates.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/bindings.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

std::vector<std::string_view> documents_of(const nb::bytes& data, const AnyArray& ends) {
    const auto positions = checked_span<std::int64_t>(ends, "ends", "int64");
    const std::string_view text(data.c_str(), data.size());
    std::vector<std::string_view> documents;
    std::int64_t begin = 0;
    for (const std::int64_t end : positions) {
        if (end < begin || end > static_cast<std::int64_t>(text.size()))
            throw ArgumentError("ends must be ascending positions in the data");
        documents.push_back(
            text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
        begin = end;
    }
    return documents;
}

auto hash(const nb::bytes& data, const AnyArray& ends) {
    const std::vector<std::string_view> documents = documents_of(data, ends);
    std::vector<std::uint64_t> hashes(2 * documents.size());
    {
        const nb::gil_scoped_release free;
        hash_documents(documents, hashes.data());
    }
    return to_numpy_array(std::move(hashes), {documents.size(), 2});
}

auto bands(const nb::bytes& data, const AnyArray& ends) {
    const std::vector<std::string_view> documents = documents_of(data, ends);
    std::vector<std::uint64_t> hashes;
    hashes.reserve(kBands * documents.size());
    {
        const nb::gil_scoped_release free;
        for (const std::string_view document : documents) {
            const auto of_document = band_hashes(shingle_hashes(document));
            hashes.insert(hashes.end(), of_document.begin(), of_document.end());
        }
    }
    return to_numpy_array(std::move(hashes), {documents.size(), kBands});
}

auto clusters(const nb::bytes& data, const AnyArray& ends, double threshold) {
    const std::vector<std::string_view> documents = documents_of(data, ends);
    std::vector<std::int64_t> heads;
    {
        const nb::gil_scoped_release free;
        std::vector<std::vector<std::uint64_t>> shingles;
        for (const std::string_view document : documents) shingles.push_back(shingle_hashes(document));
        heads = near_duplicates(shingles, threshold);
    }
    return to_numpy_array(std::move(heads), {documents.size()});
}

auto components(const AnyArray& pairs, std::int64_t size) {
    const auto members = checked_span<std::int64_t>(pairs, "pairs", "int64", 2);
    if (size < 0) throw ArgumentError("size is " + std::to_string(size) + "; choose 0 or more");
    for (const std::int64_t member : members)
        if (member < 0 || member >= size) throw ArgumentError("a pair is not below the size");
    std::vector<std::int64_t> heads;
    {
        const nb::gil_scoped_release free;
        DisjointSets sets(static_cast<std::size_t>(size));
        for (std::size_t i = 0; i + 1 < members.size(); i += 2)
            sets.join(static_cast<std::size_t>(members[i]), static_cast<std::size_t>(members[i + 1]));
        heads = sets.representatives();
    }
    const std::size_t length = heads.size();
    return to_numpy_array(std::move(heads), {length});
}

}  // namespace

void bind_duplicates(nb::module_& module) {
    module.def("hash_documents", &hash, nb::arg("data"), nb::arg("ends"),
               "The 128-bit hashes of the words of each document, (N, 2) uint64.");
    module.def("band_hashes", &bands, nb::arg("data"), nb::arg("ends"),
               "The hashes of the bands of the MinHash signature of each document, (N, 16) uint64.");
    module.def("near_duplicates", &clusters, nb::arg("data"), nb::arg("ends"), nb::arg("threshold"),
               "The first document of the cluster of near duplicates of each document, (N,) int64.");
    module.def(
        "shingle_hashes",
        [](std::string_view text) {
            std::vector<std::uint64_t> hashes = shingle_hashes(text);
            const std::size_t length = hashes.size();
            return to_numpy_array(std::move(hashes), {length});
        },
        nb::arg("text"), "The hashes of the distinct shingles of a document, ascending.");
    module.def(
        "connected_components", &components, nb::arg("pairs"), nb::arg("size"),
        "The smallest member of the component of each of 0 … size − 1, (N,) int64; `pairs` is (M, 2).");
}

}  // namespace chainrule
