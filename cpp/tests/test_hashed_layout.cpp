#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "checks.hpp"
#include "ngram/format/hashed_layout.hpp"
#include "ngram/format/model_file.hpp"
#include "ngram/format/model_file_header.hpp"
#include "random_tables.hpp"

namespace chainrule::tests {

namespace {

std::vector<char> bytes_of(const UninitializedBuffer<char>& image) { return {image.begin(), image.end()}; }

std::shared_ptr<ModelFile> image_of(const std::vector<TableLevel>& levels, std::size_t threads = 1) {
    const TableRows rows(levels);
    const FileMetadata metadata = metadata_of(levels);
    return ModelFile::of(model_image(metadata, hashed_sections(rows, metadata), threads));
}

bool is_row(const Lookup& lookup, const std::vector<TableLevel>& levels, std::size_t order, std::size_t row) {
    const TableLevel& level = levels[order - 1];
    const bool is_top = order == levels.size();
    return lookup.is_present && lookup.row == row && lookup.log_prob == level.log_prob[row] &&
           lookup.log_backoff == (is_top ? 0 : level.log_backoff[row]) &&
           lookup.children.from == (is_top ? 0 : levels[order].first[row]) &&
           lookup.children.to == (is_top ? 0 : levels[order].first[row + 1]);
}

// All words of large nodes and some absent ones, compared with a linear search.
void compare_node(const HashedLayout& layout, const std::vector<TableLevel>& levels, std::size_t order,
                  Children in, Random& random, bool& is_same) {
    const TableLevel& level = levels[order - 1];
    const auto vocabulary = static_cast<std::uint32_t>(levels[0].size());
    const auto ask = [&](std::uint32_t word) {
        layout.prefetch(order, in, word);
        layout.prefetch_row(order, in, word);
        const auto* const at = std::find(level.word.begin() + in.from, level.word.begin() + in.to, word);
        const Lookup lookup = layout.find(order, in, word);
        const bool is_present = at != level.word.begin() + in.to;
        const bool is_right =
            is_present ? is_row(lookup, levels, order, static_cast<std::size_t>(at - level.word.begin()))
                       : !lookup.is_present;
        is_same = is_same && is_right;
    };
    const std::uint32_t step = 1 + in.size() / 300;
    for (std::uint32_t row = in.from; row < in.to; row += step) ask(level.word[row]);
    for (std::uint32_t i = 0; i < std::min(50U, 2 + in.size()); ++i) ask(random.below(vocabulary));
    ask(0);
    ask(vocabulary - 1);
}

void compare(const HashedLayout& layout, const std::vector<TableLevel>& levels, const std::string& what) {
    Random random(5);
    bool is_same = layout.order() == levels.size();
    for (std::uint32_t word = 0; word < levels[0].size(); ++word)
        is_same = is_same && is_row(layout.first(word), levels, 1, word);
    for (std::size_t order = 1; order <= levels.size(); ++order) {
        const TableLevel& level = levels[order - 1];
        for (std::uint32_t row = 0; row < level.size(); ++row) {
            std::uint32_t word = 0xFFFFFFFF;
            is_same =
                is_same && is_row(layout.at(order, row, word), levels, order, row) && word == level.word[row];
        }
        for (std::size_t i = 0; order > 1 && i + 1 < level.first.size(); ++i)
            compare_node(layout, levels, order, {level.first[i], level.first[i + 1]}, random, is_same);
    }
    check(is_same, what);
}

void lookups_equal_the_tables() {
    for (std::size_t order = 1; order <= 6; ++order) {
        for (const std::uint32_t vocabulary : {1U, 7U, 300U, 9000U}) {
            const auto levels =
                random_tables(order, vocabulary, {0, 1, 8, 9, 5000, 255, 256}, order + vocabulary);
            const std::string what = "order " + std::to_string(order) + ", V " + std::to_string(vocabulary);
            const auto image = image_of(levels);
            compare(HashedLayout(image), levels, what);
            const TableRows rows(levels);
            const FileMetadata metadata = metadata_of(levels);
            const Scratch scratch;
            write_model(scratch.name(), metadata, hashed_sections(rows, metadata), 3);
            const auto file = ModelFile::open(scratch.name(), false, 0);  // verified on access
            check(
                !file->is_verified() && file->digest() == image->digest() && file->bytes() == image->bytes(),
                what + ": the same file from three threads");
            compare(HashedLayout(file), levels, what + ", from the disk");
            file->verify_all(2);
            check(file->is_verified(), what + ": all verified");
        }
    }
}

// Nodes that span several pieces of a file, and nodes whose index is a directory.
void large_nodes() {
    const auto levels = random_tables(3, 200000, {65535, 65536, 150000, 9, 70000}, 3);
    const TableRows rows(levels);
    const FileMetadata metadata = metadata_of(levels);
    const auto one = bytes_of(model_image(metadata, hashed_sections(rows, metadata), 1));
    check(one == bytes_of(model_image(metadata, hashed_sections(rows, metadata), 3)),
          "three threads, the same bytes");
    compare(HashedLayout(image_of(levels, 2)), levels, "large nodes");
}

void words_by_probability() {
    auto levels = random_tables(2, 5, {2}, 1);
    const float infinity = std::numeric_limits<float>::infinity();
    const float log_prob[] = {-infinity, -1, -0.5F, -1, -3};
    std::ranges::copy(log_prob, levels[0].log_prob.begin());
    const auto file = image_of(levels);
    const HashedLayout layout(file);
    const auto sorted = layout.by_probability();
    check(
        std::vector<std::uint32_t>(sorted.begin(), sorted.end()) == std::vector<std::uint32_t>{2, 1, 3, 4, 0},
        "−0.5; −1 twice, the lower number first; −3; −inf");
}

// 300 rows of order 1, 2 and 3 with a node of 20: 16 bytes per row and 4 of index; 12 at the highest order.
void sizes() {
    const auto levels = random_tables(3, 300, {20}, 2);
    const std::uint64_t one = 301 * 16 + 300 * 4, two = (levels[1].size() + 1) * 16 + levels[1].size() * 4;
    const std::uint64_t three = levels[2].size() * 12;
    const std::uint64_t bytes = image_of(levels)->bytes();
    // Six sections aligned to cache lines, and a header of less than 512 bytes.
    check(bytes >= one + two + three && bytes <= one + two + three + 512 + 6 * 64, "bytes of a model");
}

// A model of synthetic sections with valid checksums.
class Hostile {
  public:
    explicit Hostile(const std::vector<TableLevel>& levels) : metadata_(metadata_of(levels)) {
        const TableRows rows(levels);
        for (const Section& section : hashed_sections(rows, metadata_)) {
            std::vector<char> bytes(section.size);
            if (section.prepare) section.prepare();
            if (section.size) section.fill(0, section.size, bytes.data());
            if (section.done) section.done();
            sections_.emplace_back(section.id, std::move(bytes));
        }
    }

    template <class T>
    T* in(std::uint32_t id) {
        for (auto& [other, bytes] : sections_)
            if (other == id) return reinterpret_cast<T*>(bytes.data());
        return nullptr;
    }

    void write(const std::string& path) const {
        std::vector<Section> sections;
        for (const auto& [id, bytes] : sections_) {
            Section section;
            section.id = id;
            section.size = bytes.size();
            section.fill = [&bytes](std::uint64_t from, std::uint64_t size, char* into) {
                std::memcpy(into, bytes.data() + from, size);
            };
            sections.push_back(section);
        }
        write_model(path, metadata_, sections, 1);
    }

  private:
    FileMetadata metadata_;
    std::vector<std::pair<std::uint32_t, std::vector<char>>> sections_;
};

// Queries everything; Error is allowed, out-of-bounds access is not.
void ask_all(const std::string& path, std::uint64_t verified_at_open) {
    try {
        const HashedLayout layout(ModelFile::open(path, false, verified_at_open));
        for (std::uint32_t word = 0; word < layout.size(1); ++word) {
            std::vector<Lookup> contexts{layout.first(word)};
            for (std::size_t order = 2; order <= layout.order(); ++order) {
                std::vector<Lookup> next;
                for (const Lookup& context : contexts) {
                    for (std::uint32_t w = 0; w < layout.size(1); ++w) {
                        const Lookup lookup = layout.find(order, context.children, w);
                        if (lookup.is_present && next.size() < 50) next.push_back(lookup);
                    }
                    std::uint32_t listed = 0;
                    for (std::uint32_t row = context.children.from; row < context.children.to; ++row)
                        layout.at(order, row, listed);
                }
                contexts = std::move(next);
            }
        }
    } catch (const Error&) {
    }
}

void hostile_content() {
    const auto levels = random_tables(3, 200, {40, 9, 8, 3}, 7);
    const auto refused = [&](const auto& change, const std::string& what) {
        Hostile hostile(levels);
        change(hostile);
        const Scratch scratch;
        hostile.write(scratch.name());
        check_fails([&] { HashedLayout layout(ModelFile::open(scratch.name(), true)); }, what);
        check_fails(
            [&] {
                const auto file = ModelFile::open(scratch.name(), false, 0);
                const HashedLayout layout(file);
                file->verify_all(1);
            },
            what);
        ask_all(scratch.name(), 0);
    };
    refused([](Hostile& h) { h.in<HashedRow>(kHashedRows + 1)[5].first = 0xFFFFFFFF; },
            "it contains an invalid row");
    refused([&](Hostile& h) { h.in<HashedRow>(kHashedRows + 2)[levels[1].size()].first += 1; },
            "it contains an invalid row");
    refused(
        [](Hostile& h) {
            std::swap(h.in<HashedRow>(kHashedRows + 1)[3].first, h.in<HashedRow>(kHashedRows + 1)[90].first);
        },
        "it contains an invalid row");
    refused([](Hostile& h) { h.in<HashedRow>(kHashedRows + 2)[0].word = 200; }, "it contains an invalid row");
    refused([](Hostile& h) { h.in<HashedTopRow>(kHashedRows + 3)[0].word = 0xFFFFFFFF; },
            "it contains an invalid row");
    refused(
        [](Hostile& h) {
            h.in<HashedTopRow>(kHashedRows + 3)[1].log_prob = std::numeric_limits<float>::quiet_NaN();
        },
        "it contains an invalid row");
    refused([](Hostile& h) { h.in<std::uint32_t>(4)[7] = 200; }, "not in its vocabulary");

    Random random(1);
    for (int times = 0; times < 50; ++times) {  // a random index: no row out of range, no infinite probing
        Hostile hostile(levels);
        for (const std::uint32_t n : {2U, 3U}) {
            auto* const index = hostile.in<std::uint16_t>(kHashedIndex + n);
            for (std::size_t i = 0; i < 2 * levels[n - 1].size(); ++i)
                index[i] = times == 0 ? 0xFFFF : static_cast<std::uint16_t>(random.next());
        }
        const Scratch scratch;
        hostile.write(scratch.name());
        ask_all(scratch.name(), times % 2 ? 0 : kVerifiedAtOpen);
    }
}

void hostile_directory() {
    const auto levels = random_tables(2, 70000, {65536}, 4);
    Hostile hostile(levels);
    Random random(2);
    auto* const index = hostile.in<std::uint32_t>(kHashedIndex + 2);
    for (std::size_t i = 0; i < levels[1].size(); ++i) index[i] = random.next();
    const Scratch scratch;
    hostile.write(scratch.name());
    const HashedLayout layout(ModelFile::open(scratch.name(), true));
    for (std::uint32_t context = 0; context < 20; ++context) {
        const Children in = layout.first(context).children;
        for (std::uint32_t word = 0; word < 70000; ++word) {
            const Lookup lookup = layout.find(2, in, word);
            if (lookup.is_present && levels[1].word[lookup.row] != word)
                check(false, "a row of another word");
        }
    }
}

}  // namespace

static void test_hashed_layout() {
    lookups_equal_the_tables();
    large_nodes();
    words_by_probability();
    sizes();
    hostile_content();
    hostile_directory();
}

static const Test registered("hashed_layout", test_hashed_layout);

}  // namespace chainrule::tests
