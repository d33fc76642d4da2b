#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/parallel.hpp"
#include "checks.hpp"
#include "ngram/format/hashed_layout.hpp"
#include "ngram/format/model_file.hpp"
#include "ngram/format/model_file_header.hpp"
#include "ngram/format/stored_vocabulary.hpp"
#include "random_tables.hpp"

namespace chainrule::tests {

namespace {

using Bytes = std::vector<char>;

void put(const std::string& path, const Bytes& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<long>(bytes.size()));
}

Bytes read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// A section whose bytes depend on its id and their position.
Section section_of(std::uint32_t id, std::uint64_t size, std::uint64_t chunk = 64) {
    Section section;
    section.id = id;
    section.size = size;
    section.chunk = chunk;
    section.fill = [id](std::uint64_t from, std::uint64_t size, char* into) {
        for (std::uint64_t i = 0; i < size; ++i) into[i] = static_cast<char>((from + i) * id >> 3);
    };
    return section;
}

bool is_refused(const std::string& path) {
    try {
        ModelFile::open(path, false);
        return false;
    } catch (const Error&) {
        return true;
    }
}

void known_checksum() {
    // Two words: Σ mix(w_i + (i + 1) K), mix(x) = (y ^ y >> 32) B with y = x A, written out.
    const std::uint64_t words[2] = {7, 0};
    std::uint64_t expected = 0;
    for (std::uint64_t i = 0; i < 2; ++i) {
        const std::uint64_t y = (words[i] + (i + 1) * 0x9E3779B97F4A7C15ULL) * 0xFF51AFD7ED558CCDULL;
        expected += (y ^ y >> 32) * 0xC4CEB9FE1A85EC53ULL;
    }
    const char* const bytes = reinterpret_cast<const char*>(words);
    check(checksum(bytes, 2) == expected, "the sum over words");
    check(checksum(bytes, 1) + checksum(bytes + 8, 1, 1) == expected, "parts add up");
    const std::uint64_t swapped[2] = {0, 7};
    check(checksum(reinterpret_cast<const char*>(swapped), 2) != expected, "swapped words");
}

// A quantised file of version 2 is never normalised, whatever its header says; one of version 3 is.
void quantized_by_version_2(FileMetadata metadata, const std::vector<Section>& sections) {
    metadata.model.is_normalized = true;
    UninitializedBuffer<char> image = model_image(metadata, sections, 1);
    FixedHeader head;
    std::memcpy(&head, image.data(), sizeof head);
    check(head.version == 3, "quantised models have version 3");
    check(ModelFile::of(model_image(metadata, sections, 1))->metadata().model.is_normalized,
          "version 3 is normalised");
    head.version = 2;
    std::memcpy(image.data(), &head, sizeof head);
    const std::uint64_t header_checksum = checksum(image.data(), head.header / 8 - 1);
    std::memcpy(image.data() + head.header - 8, &header_checksum, 8);
    check(!ModelFile::of(std::move(image))->metadata().model.is_normalized, "quantised in version 2");
    metadata.bits = 0;
    const UninitializedBuffer<char> exact = model_image(metadata, sections, 1);
    std::memcpy(&head, exact.data(), sizeof head);
    check(head.version == 2, "other models keep version 2");
}

void metadata_round_trip() {
    FileMetadata metadata;
    metadata.layout = LayoutKind::small;
    metadata.bits = 8;
    metadata.model = {9, 3, 4, 0xFFFFFFFF, false, true, false, -1.5F};
    metadata.sizes = {9, 20, 0};
    const std::vector<Section> sections{section_of(77, 100), section_of(5, 0), section_of(6, 300000, 24),
                                        section_of(78, 200000, 200000)};
    const Scratch scratch, copy;
    write_model(scratch.name(), metadata, sections, 2);
    const auto file = ModelFile::open(scratch.name(), false);
    const FileMetadata& back = file->metadata();
    check(back.layout == LayoutKind::small && back.bits == 8 && back.sizes == metadata.sizes,
          "layout and sizes");
    check(back.model.vocabulary == 9 && back.model.begin == 3 && back.model.end == 4 &&
              back.model.unknown == 0xFFFFFFFF && !back.model.is_stream && back.model.is_closed &&
              !back.model.is_normalized && back.model.log_missing == -1.5F,
          "metadata of the model");
    check(file->section(5).empty() && file->section(1).empty(), "sections that are empty or not there");
    for (const Section& section : sections) {
        Bytes expected(section.size);
        section.fill(0, section.size, expected.data());
        const auto content = file->section(section.id);
        check(std::ranges::equal(content, expected), "section " + std::to_string(section.id));
        check(content.empty() || reinterpret_cast<std::uintptr_t>(content.data()) % 64 == 0,
              "on a cache line");
    }
    const UninitializedBuffer<char> image = model_image(metadata, sections, 3);
    const Bytes in_memory(image.begin(), image.end());
    check(in_memory == read(scratch.name()), "the same bytes in memory");
    quantized_by_version_2(metadata, sections);
    file->save(copy.name());
    check(read(copy.name()) == in_memory, "a copy");
    check_fails<IoError>([&] { write_model(copy.name(), metadata, sections, 1); },
                         copy.name() + " cannot be written");
    check(read(copy.name()) == in_memory, "an existing file is kept");
    check_fails<ArgumentError>([&] { model_image(metadata, {section_of(77, 100, 12)}, 1); },
                               "not made in whole words");
    metadata.sizes[0] = 8;
    check_fails<ArgumentError>([&] { model_image(metadata, sections, 1); }, "a vocabulary of 9 words");
    metadata.sizes.assign(1001, 9);
    check_fails<ArgumentError>([&] { model_image(metadata, sections, 1); }, "order 1001");
}

void failed_section_leaves_no_file() {
    Section section = section_of(77, 100);
    section.fill = [](std::uint64_t, std::uint64_t, char*) { throw Error("no rows"); };
    const Scratch scratch;
    const FileMetadata metadata = metadata_of(random_tables(1, 9, {}, 1));
    check_fails([&] { write_model(scratch.name(), metadata, {section}, 2); }, "no rows");
    check(!std::filesystem::exists(scratch.name()), "no file is left");
}

// A small model with names: every bit flip and every truncation is tried.
Bytes small_model() {
    const auto levels = random_tables(2, 12, {10, 3}, 1);
    const TableRows rows(levels);
    const FileMetadata metadata = metadata_of(levels);
    std::vector<Section> sections = hashed_sections(rows, metadata);
    auto names = std::make_shared<WordList>();
    for (int i = 0; i < 12; ++i) names->add("word number " + std::to_string(i));
    for (const Section& section : vocabulary_sections(names)) sections.push_back(section);
    const UninitializedBuffer<char> image = model_image(metadata, sections, 1);
    return {image.begin(), image.end()};
}

void every_bit_flip_is_detected() {
    const Scratch scratch;
    Bytes bytes = small_model();
    put(scratch.name(), bytes);
    check(!is_refused(scratch.name()), "the file as it was");
    std::size_t passed = 0;
    std::fstream file(scratch.name(), std::ios::binary | std::ios::in | std::ios::out);
    const auto set = [&](std::size_t i, char byte) {
        file.seekp(static_cast<long>(i));
        file.put(byte);
        file.flush();
    };
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        for (int bit = 0; bit < 8; ++bit) {
            set(i, static_cast<char>(bytes[i] ^ (1 << bit)));
            passed += !is_refused(scratch.name());
        }
        set(i, bytes[i]);
    }
    check(passed == 0, std::to_string(passed) + " flipped bits of " + std::to_string(8 * bytes.size()));
    check(!is_refused(scratch.name()), "the file as it was, again");
}

void every_truncation_is_detected() {
    const Scratch scratch;
    Bytes bytes = small_model();
    std::size_t passed = 0;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        put(scratch.name(), Bytes(bytes.begin(), bytes.begin() + static_cast<long>(size)));
        passed += !is_refused(scratch.name());
    }
    check(passed == 0, "cut short: " + std::to_string(passed));
    for (const std::size_t more : {1U, 64U, 65536U}) {
        Bytes longer = bytes;
        longer.insert(longer.end(), more, 0);
        put(scratch.name(), longer);
        check_fails<ModelFileError>([&] { ModelFile::open(scratch.name(), false); }, "bytes but should have");
    }
}

// The header with changed numbers and a valid checksum: huge sizes, orders, versions.
void invalid_headers_are_rejected() {
    const Scratch scratch;
    const Bytes bytes = small_model();
    const auto refused = [&](const auto& change, const std::string& what,
                             const Where& where = Where::current()) {
        Bytes other = bytes;
        FixedHeader head;
        std::memcpy(&head, other.data(), sizeof(head));
        const std::uint64_t header = head.header;
        change(head, other);
        std::memcpy(other.data(), &head, sizeof(head));
        const std::uint64_t header_checksum = checksum(other.data(), header / 8 - 1);
        std::memcpy(other.data() + header - 8, &header_checksum, 8);
        put(scratch.name(), other);
        check_fails<ModelFileError>([&] { ModelFile::open(scratch.name(), true); }, what, where);
    };
    const auto entry = [](Bytes& other) {
        return reinterpret_cast<SectionEntry*>(other.data() + sizeof(FixedHeader) + 2 * 8);
    };
    refused([](FixedHeader& h, Bytes&) { h.version = 1; },
            "version 1, but this version of chainrule reads versions 2 and 3");
    refused([](FixedHeader& h, Bytes&) { h.magic[0] = '{'; }, "not an n-gram model");
    refused([](FixedHeader& h, Bytes&) { h.order = 1001; }, "header does not fit");
    refused([](FixedHeader& h, Bytes&) { h.order = 0xFFFFFFFF; }, "header does not fit");
    refused([](FixedHeader& h, Bytes&) { h.sections = 0xFFFFFFFF; }, "header does not fit");
    refused([](FixedHeader& h, Bytes&) { h.header = 0xFFFFFFFFFFFFFFC0; }, "header does not fit");
    refused([](FixedHeader& h, Bytes&) { h.header = 0; }, "header does not fit");
    refused([](FixedHeader& h, Bytes&) { h.file = 0xFFFFFFFFFFFFFFFF; }, "should have");
    refused([](FixedHeader& h, Bytes&) { h.vocabulary = 0; }, "contains invalid values");
    refused([](FixedHeader& h, Bytes&) { h.vocabulary = 0x80000000; }, "contains invalid values");
    refused([](FixedHeader& h, Bytes&) { h.begin = 12; }, "contains invalid values");
    refused([](FixedHeader& h, Bytes&) { h.unknown = 12; }, "contains invalid values");
    refused([](FixedHeader& h, Bytes&) { h.layout = 3; }, "contains invalid values");
    refused([](FixedHeader& h, Bytes&) { h.flags = 32; }, "contains invalid values");
    refused([](FixedHeader&, Bytes& b) { b[sizeof(FixedHeader)] = 13; },
            "contains invalid values");  // rows of order 1
    refused([&](FixedHeader&, Bytes& b) { entry(b)->from = 0; }, "a section lies outside");
    refused([&](FixedHeader&, Bytes& b) { entry(b)->from += 8; }, "a section lies outside");
    refused([&](FixedHeader&, Bytes& b) { entry(b)->size = 0xFFFFFFFFFFFFFFFF; }, "a section lies outside");
    refused([&](FixedHeader&, Bytes& b) { entry(b)[1].id = entry(b)[0].id; }, "a section twice");
    // A wrong section size is detected by the layout.
    Bytes other = bytes;
    FixedHeader head;
    std::memcpy(&head, other.data(), sizeof(head));
    entry(other)[1].size -= 16;
    const std::uint64_t header_checksum = checksum(other.data(), head.header / 8 - 1);
    std::memcpy(other.data() + head.header - 8, &header_checksum, 8);
    put(scratch.name(), other);
    check_fails([&] { HashedLayout layout(ModelFile::open(scratch.name(), true)); },
                "a section does not fit");
}

// In a file that is not verified when opened, only accessed blocks are verified.
void blocks_are_verified_on_first_access() {
    const FileMetadata metadata = metadata_of(random_tables(1, 9, {}, 1));
    const Scratch scratch;
    write_model(scratch.name(), metadata, {section_of(77, 5 * kBlock, 4096)}, 2);
    Bytes bytes = read(scratch.name());
    bytes[bytes.size() - 2 * kBlock - 9] ^= 4;  // in the third of five blocks
    put(scratch.name(), bytes);
    check_fails<ModelFileError>([&] { ModelFile::open(scratch.name(), false); }, "block 3 of 5");
    check_fails<ModelFileError>([&] { ModelFile::open(scratch.name(), true, 0); },
                                scratch.name() + " is damaged");
    const auto file = ModelFile::open(scratch.name(), false, 0);
    std::vector<std::uint64_t> checked_from;
    file->on_verified([&](std::uint32_t id, std::uint64_t from, std::uint64_t to) {
        check(id == 77 && to - from == kBlock, "the part of a section in a block");
        checked_from.push_back(from);
    });
    const char* const data = file->section(77).data();
    file->touch(data + 2 * kBlock - 8, 8);
    file->touch(data + kBlock, 1);
    file->touch(data + 3 * kBlock, kBlock + 1);
    check(checked_from == std::vector<std::uint64_t>{kBlock, 3 * kBlock, 4 * kBlock}, "each block once");
    check(!file->is_verified(), "two blocks remain");
    for (int times = 0; times < 2; ++times)
        check_fails([&] { file->touch(data + 2 * kBlock - 1, 2); }, "block 3 of 5");
    check_fails([&] { file->verify_all(3); }, "block 3 of 5");
}

void threads_verify_blocks_concurrently() {
    const FileMetadata metadata = metadata_of(random_tables(1, 9, {}, 1));
    const Scratch scratch;
    write_model(scratch.name(), metadata, {section_of(77, 40 * kBlock, 4096)}, 2);
    const auto file = ModelFile::open(scratch.name(), false, 0);
    const std::span<const char> bytes = file->section(77);
    std::vector<std::uint64_t> sums(3);
    parallel_for(3, [&](std::size_t t) {
        for (std::size_t i = 0; i < bytes.size(); i += 1000) {
            file->touch(bytes.data() + i, 1);
            sums[t] += static_cast<unsigned char>(bytes[i]);
        }
    });
    check(file->is_verified() && sums[0] == sums[1] && sums[1] == sums[2],
          "all threads read the same bytes, all verified");
}

// A file modified after opening: blocks already read stay valid, others are rejected, and a mapped file is
// rejected completely, unless it was only removed.
void modified_file_is_rejected() {
    const auto levels = random_tables(3, 5000, {60000, 60000}, 1);
    const TableRows rows(levels);
    const FileMetadata metadata = metadata_of(levels);
    const UninitializedBuffer<char> image = model_image(metadata, hashed_sections(rows, metadata), 1);
    const Bytes bytes(image.begin(), image.end());
    const Scratch scratch, copy;
    const auto last_block = [](const ModelFile& file) {
        const auto section = file.section(kByProbability);
        file.begin_call();
        file.touch(section.data() + section.size() - 4, 4);
    };
    put(scratch.name(), bytes);
    const auto whole = ModelFile::open(scratch.name(), false),
               lazy = ModelFile::open(scratch.name(), false, 0),
               partly = ModelFile::open(scratch.name(), false, 0),
               mapped = ModelFile::open(scratch.name(), false, 0, 1);
    check(!whole->is_mapped() && !lazy->is_mapped() && mapped->is_mapped(), "files of more bytes are mapped");
    last_block(*partly);
    last_block(*mapped);
    put(scratch.name(), Bytes(bytes.begin(), bytes.begin() + 1000));
    last_block(*partly);
    last_block(*whole);
    check_fails([&] { last_block(*lazy); }, "became shorter");
    check_fails([&] { last_block(*mapped); }, "changed after it was opened");
    check_fails([&] { lazy->save(copy.name()); }, "became shorter");
    check(!std::filesystem::exists(copy.name()), "a failed copy leaves nothing");
    whole->save(copy.name());
    check(chainrule::tests::read(copy.name()) == bytes, "the copy equals the data read");

    put(scratch.name(), bytes);
    const auto removed = ModelFile::open(scratch.name(), false, 0, 1);
    std::filesystem::remove(scratch.name());
    last_block(*removed);
    check(removed->is_mapped(), "a removed file stays usable");
    check_fails<ModelFileError>([&] { ModelFile::open(std::filesystem::temp_directory_path(), false); },
                                "not a regular file");
}

}  // namespace

static void test_model_file() {
    known_checksum();
    metadata_round_trip();
    failed_section_leaves_no_file();
    every_bit_flip_is_detected();
    every_truncation_is_detected();
    invalid_headers_are_rejected();
    blocks_are_verified_on_first_access();
    threads_verify_blocks_concurrently();
    modified_file_is_rejected();
}

static const Test registered("model_file", test_model_file);

}  // namespace chainrule::tests
