// Any bytes are a model file that can be queried, or raise Error: unchanged, and with corrected checksums, so
// that the later checks are reached.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../random_tables.hpp"
#include "base/error.hpp"
#include "driver.hpp"
#include "ngram/format/model_file_header.hpp"
#include "ngram/query/model.hpp"
#include "ngram/query/sentences.hpp"

namespace chainrule {

namespace {

// In memory if the system supports it; each process has its own file and removes it at exit.
struct OwnFile {
    std::string path = std::string(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + "/chainrule-fuzz-" +
                       std::to_string(getpid());
    ~OwnFile() { std::remove(path.c_str()); }
};

const std::string& path() {
    static const OwnFile file;
    return file.path;
}

// Corrects the sizes in the header as far as possible, and every checksum.
void make_right(std::string& bytes) {
    if (bytes.size() < sizeof(FixedHeader)) return;
    FixedHeader head;
    std::memcpy(&head, bytes.data(), sizeof head);
    // Resized to the size in the header, so that inserted or removed bytes do not move the sections.
    const bool is_sensible = head.file >= sizeof head && head.file <= std::uint64_t{1} << 20;
    bytes.resize((is_sensible ? head.file : bytes.size()) / 8 * 8);
    head.magic = kMagic;
    head.version = kVersion;
    head.file = bytes.size();
    // The number of blocks depends on the size of the header, which includes their checksums.
    for (std::uint64_t header = head.header, i = 0; i < 4 && header <= head.file; ++i) {
        header = header_bytes(head.order % kMaxOrders, head.sections % 64, block_count(head.file - header));
        if (header <= head.file) head.header = header;
    }
    head.order %= kMaxOrders;
    head.sections %= 64;
    std::memcpy(bytes.data(), &head, sizeof head);
    if (head.header > head.file || head.header % 8) return;
    const std::uint64_t blocks = block_count(head.file - head.header);
    const std::uint64_t at =
        sizeof head + 8 * std::uint64_t{head.order} + sizeof(SectionEntry) * head.sections;
    if (at + 8 * blocks + 8 > head.header) return;
    for (std::uint64_t block = 0; block < blocks; ++block) {
        const std::uint64_t from = head.header + block * kBlock,
                            to = std::min<std::uint64_t>(from + kBlock, head.file);
        const std::uint64_t sum = checksum(bytes.data() + from, (to - from) / 8);
        std::memcpy(bytes.data() + at + 8 * block, &sum, 8);
    }
    const std::uint64_t sum = checksum(bytes.data(), head.header / 8 - 1);
    std::memcpy(bytes.data() + head.header - 8, &sum, 8);
}

void ask(const Model& model) {
    const std::vector<std::string_view> sentences{"w1 w2 w3 w4 w5", "w3 w3 w3 w1 nobody", "", "w9 w8 w7 w6"};
    if (model.names()) score_sentences(model, sentences, {true, true, 1});
    const std::uint32_t V = model.metadata().vocabulary;
    State state = model.begin(), after = state;
    for (std::uint32_t i = 0; i < 60; ++i) {
        model.step(state, i * i % V, after);
        std::swap(state, after);
        if (i % 10 == 0 && V < 100000) {
            std::vector<double> all(V);
            model.next(state, all.data());
            model.top(state, 5);
            model.draw(state, i / 60.0);
        }
    }
    const std::unique_ptr<Rows> rows = model.rows();
    for (std::size_t n = 1; n <= rows->order(); ++n) {
        const std::uint64_t size = std::min<std::uint64_t>(rows->size(n), 2000);
        std::vector<std::uint32_t> word(size), first(size + 1);
        std::vector<float> log_prob(size), log_backoff(size);
        rows->read(n, rows->size(n) - size, size, word.data(), log_prob.data(), log_backoff.data(),
                   first.data());
    }
}

void open_and_ask(const std::string& bytes) {
    {
        std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
    }
    for (const std::uint64_t verified_at_open : {std::uint64_t{0}, kVerifiedAtOpen}) {
        try {
            ask(*Model::open(path(), false, verified_at_open));
        } catch (const Error&) {
        }
    }
}

}  // namespace

}  // namespace chainrule

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string bytes(reinterpret_cast<const char*>(data), size);
    chainrule::open_and_ask(bytes);
    chainrule::make_right(bytes);
    chainrule::open_and_ask(bytes);
    return 0;
}

namespace chainrule::fuzz {

std::vector<std::string> seeds() {
    std::vector<std::string> result;
    for (const auto& [layout, bits] : {LayoutChoice{LayoutKind::fast, 0}, LayoutChoice{LayoutKind::small, 0},
                                       LayoutChoice{LayoutKind::small, 8}}) {
        for (const std::size_t order : {1, 2, 4}) {
            const auto levels = tests::random_tables(order, 40, {0, 1, 9, 30}, order);
            auto names = std::make_shared<WordList>();
            for (int i = 0; i < 40; ++i) names->add("w" + std::to_string(i));
            const ModelMetadata metadata{40, 1, 2, 0, false, false, true, -0.25F};
            const auto model = Model::of(TableRows(levels), metadata, names, {layout, bits}, 1);
            std::remove(path().c_str());
            model->file().save(path());
            std::ifstream in(path(), std::ios::binary);
            result.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
        }
    }
    return result;
}

std::vector<std::string> pieces() {
    return {std::string(8, '\0'), std::string(4, '\xFF'), std::string(64, '\0'), std::string(64, '\xFF')};
}

}  // namespace chainrule::fuzz
