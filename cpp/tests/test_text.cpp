// Plain text: pieces of lines, words, ids, hashes. tests/tokenizers/test_encode_native.py compares the
// results with the Python implementation.
#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "checks.hpp"
#include "text/blake2b/blake2b.hpp"
#include "text/encode.hpp"
#include "text/line_sketch.hpp"
#include "text/lines.hpp"
#include "text/utf8.hpp"
#include "text/words.hpp"

namespace chainrule::tests {

namespace {

void write(const std::string& file, std::string_view text) {
    std::ofstream(file, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

// All lines of the text, read in pieces of `piece` bytes; "none" if it is not plain.
std::string read_all(const std::string& file, std::uint64_t piece) {
    const PlainText text({file, file}, piece);
    std::string buffer, all;
    for (std::size_t i = 0; text.is_found() && i < text.pieces(); ++i) {
        const auto lines = text.read(i, buffer);
        if (!lines) return "none";
        all += *lines;
    }
    return text.is_found() ? all : "none";
}

void pieces_concatenate_to_the_text() {
    const Scratch file;
    for (const std::string text :
         {"a\n", "a", "\n", "\n\n\na b\n\n c d", "ab\ncd\nef\n", "\xC3\xA9\n\xE2\x80\xA8x"}) {
        write(file.name(), text);
        const std::string ended = text.back() == '\n' ? text : text + "\n";
        for (std::uint64_t piece = 1; piece < 16; ++piece)
            check(read_all(file.name(), piece) == ended + ended, "pieces of " + std::to_string(piece));
    }
}

void other_text_is_not_plain() {
    const Scratch file;
    const std::string line(65536, 'x');
    for (const std::string& text :
         {std::string(), std::string("\xEF\xBB\xBFx\n"), std::string("a\r\nb\n"), std::string("a\xFFz\n"),
          line + "x\n", line + line + line + line + line + line}) {
        write(file.name(), text);
        for (const std::uint64_t piece : {3, 70000, 1 << 20})
            check(read_all(file.name(), piece) == "none", "is not plain");
    }
    // Exactly the maximum length: characters are counted, not bytes.
    std::string wide;
    for (int i = 0; i < 65536; ++i) wide += "\xC3\xA9";
    write(file.name(), line + "\n" + wide);
    check(read_all(file.name(), 1000) == line + "\n" + wide + "\n" + line + "\n" + wide + "\n", "long lines");
    check(!PlainText({file.name(), "/nowhere"}).is_found(), "a missing file");
}

void utf8() {
    for (const char* good :
         {"", "abcdefghij", "\xC2\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF", "\xEF\xBF\xBF"})
        check(is_utf8(good), "UTF-8");
    // Overlong, surrogate, above U+10FFFF, truncated, missing lead byte, invalid byte.
    for (const char* bad :
         {"\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "abcdefg\xC3",
          "\xE2\x82", "\xF0\x9F\x98", "\x80", "abcdefgh\xBF", "\xF5\x80\x80\x80", "\xC3(", "\xE2\x82("})
        check(!is_utf8(bad), "not UTF-8");
    check(count_characters("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80") == 4,
          "characters of 1, 2, 3 and 4 bytes");
}

void extents() {
    // Words a, bé, c, d: 4 words, 6 bytes with é of two, 5 characters; 3 lines.
    const TextSize text_size = measure_text(" a \tb\xC3\xA9\n\nc d\n");
    check(text_size.words == 4 && text_size.lines == 3 && text_size.letters == 6 && text_size.characters == 5,
          "extent");
    // 1000 lines of two words, 7 letters, 6 characters.
    std::string many;
    for (int i = 0; i < 1000; ++i) many += "b\xC3\xA9\tfour\n";
    const TextSize all = measure_text(many);
    check(all.words == 2000 && all.lines == 1000 && all.letters == 7000 && all.characters == 6000, "many");
    // Byte by byte gives the same as eight at a time, for every start of a word.
    for (std::size_t shift = 0; shift < 9; ++shift) {
        const TextSize moved = measure_text(std::string(shift, ' ') + "one\xC2\xA0two three\n\n four\n");
        check(moved.words == 3 && moved.lines == 3 && moved.letters == 17 && moved.characters == 16, "moved");
    }
}

void words_and_ids(std::uint64_t piece, std::size_t threads) {
    const Scratch file, numbers;
    write(file.name(), "b a b\n\n  a\tlonger-than-eight b \nz longer-than-eight");
    const PlainText text({file.name()}, piece);
    const std::optional<WordCounts> counts = count_words(text, {}, threads);
    std::string order;
    for (const std::uint32_t i : counts->order)
        order += std::string(counts->words.word(i)) + "=" + std::to_string(counts->counts[i]) + " ";
    check(order == "b=3 a=2 longer-than-eight=2 z=1 ", "by count, then by bytes: " + order);

    WordEncoding encoding{{}, {7, 5}, 0, 9};
    encoding.words.add(Word::of("a"));
    encoding.words.add(Word::of("b"));
    const std::vector<std::int32_t> expected{5, 7, 5, 9, 9, 7, 0, 5, 9, 0, 0, 9};
    const std::optional<EncodedWords> result = encode_words(text, encoding, numbers.name(), threads);
    std::string spelled;
    for (const auto& [table, number] : result->spellings)
        spelled += std::string(result->spelled[table].word(number)) + " ";
    check(spelled == "longer-than-eight z longer-than-eight ", "unknown words in their order: " + spelled);
    // "b a b", "", "a longer-than-eight b", "z longer-than-eight": 5 + 0 + 21 + 19, and four line ends.
    check(result->sizes.words == 8 && result->sizes.lines == 4, "words and lines");
    check(result->sizes.characters == 49 && result->sizes.bytes == 49, "characters and bytes");
    std::vector<std::int32_t> read(expected.size() + 1);
    std::ifstream in(numbers.name(), std::ios::binary);
    in.read(reinterpret_cast<char*>(read.data()), static_cast<std::streamsize>(read.size() * 4));
    check(in.gcount() == static_cast<std::streamsize>(expected.size() * 4), "ids in the file");
    check(std::equal(expected.begin(), expected.end(), read.begin()), "the same in the file");
    check_fails([&] { encode_words(text, encoding, "/nowhere/ids", threads); },
                "/nowhere/ids cannot be written");

    // The same in memory, in one pass.
    std::string received;
    const std::optional<EncodedText> in_memory =
        encode_text(text, encoding, {1, 10}, threads, [&](std::string_view lines) { received += lines; });
    check(received == "b a b\n\n  a\tlonger-than-eight b \nz longer-than-eight\n", "lines in order");
    check(std::equal(expected.begin(), expected.end(), in_memory->ids.begin(), in_memory->ids.end()),
          "the same in memory");
    spelled.clear();
    for (const auto& [table, number] : in_memory->spellings)
        spelled += std::string(in_memory->spelled[table].word(number)) + " ";
    check(spelled == "longer-than-eight z longer-than-eight ", "unknown words in memory: " + spelled);
    check(in_memory->sizes.words == 8 && in_memory->sizes.lines == 4, "words and lines in memory");
    check(in_memory->sizes.characters == 49 && in_memory->sizes.bytes == 49,
          "characters and bytes in memory");
    check(in_memory->sketch.hashes == sketch_lines(text, {1, 10}, threads)->hashes, "sketch in memory");

    // One scan gives the same counts, ids, spellings and sizes, and passes the text on in order.
    std::string passed_on;
    std::optional<TextScan> scan =
        scan_text(text, {}, {1, 10}, threads, [&](std::string_view lines) { passed_on += lines; });
    check(passed_on == "b a b\n\n  a\tlonger-than-eight b \nz longer-than-eight\n", "the text in order");
    order.clear();
    for (const std::uint32_t i : scan->words().order)
        order +=
            std::string(scan->words().words.word(i)) + "=" + std::to_string(scan->words().counts[i]) + " ";
    check(order == "b=3 a=2 longer-than-eight=2 z=1 ", "counts of the scan: " + order);
    check(scan->sizes().words == 8 && scan->sizes().lines == 4, "words and lines of the scan");
    check(scan->sizes().characters == 49 && scan->sizes().bytes == 49, "characters and bytes of the scan");
    check(scan->sketch().hashes == sketch_lines(text, {1, 10}, threads)->hashes, "sketch of the scan");
    check(scan->sketch().lines == 4, "lines of the sketch");
    std::vector<std::int32_t> ids(scan->words().counts.size(), 0);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (scan->words().words.word(i) == "a") ids[i] = 7;
        if (scan->words().words.word(i) == "b") ids[i] = 5;
    }
    const ScannedIds encoded = scan->encode(ids, 0, 9, threads);
    check(std::equal(expected.begin(), expected.end(), encoded.ids.begin(), encoded.ids.end()), "ids");
    spelled.clear();
    for (const std::uint32_t number : encoded.unknown)
        spelled += std::string(scan->words().words.word(number)) + " ";
    check(spelled == "longer-than-eight z longer-than-eight ", "unknown words of the scan: " + spelled);
    check_fails([&] { scan->encode(ids, 0, 9, threads); }, "the text is already encoded; scan it again");
}

void sketches(std::size_t threads) {
    const Scratch file;
    write(file.name(), "two lines\n\ntwo lines\nshort\nanother one\n");
    const PlainText text({file.name()}, 4);
    const std::uint64_t one = blake2b_64("two lines"), two = blake2b_64("another one");
    const std::optional<Sketch> both = sketch_lines(text, {6, 5}, threads),
                                least = sketch_lines(text, {6, 1}, threads);
    check(both->lines == 5, "lines");
    check(both->hashes == std::vector{std::min(one, two), std::max(one, two)}, "each line once, ascending");
    check(least->hashes == std::vector{std::min(one, two)}, "the smallest");
}

// Texts of several lengths in every order of the lanes; expected values from Python's hashlib.
void hashes() {
    const std::vector<std::pair<std::size_t, std::uint64_t>> expected{
        {0, 0xB4B2797457A0A6E4},   {1, 0xAD19753F0A3DE800},   {8, 0x543DD37A9528BE5F},
        {127, 0xCCB7A9BE516B2A26}, {128, 0xD4BD8DB997060B59}, {129, 0x87632C5FD17A3442},
        {255, 0x86801A888E94D058}, {256, 0x1BA4AB5201787DE8}, {257, 0x13462D07347E5AA3},
        {1000, 0xFC9B24FFE5BF03E1}};
    std::vector<std::string> texts;
    std::vector<std::uint64_t> values;
    for (std::size_t i = 0; i < 3 * expected.size(); ++i) {
        const auto [size, value] = expected[i * 7 % expected.size()];
        std::string& text = texts.emplace_back();
        for (std::size_t at = 0; at < size; ++at) text += static_cast<char>(7 * at + size);
        values.push_back(value);
    }
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    for (const std::string name : {"none", "avx2", "avx512", "auto"}) {
        Blake2b hash = nullptr;
        try {
            hash = choose_blake2b(name);
        } catch (const ArgumentError&) {
            continue;  // this processor does not have them
        }
        for (std::size_t count = 0; count <= views.size(); ++count) {
            std::vector<std::uint64_t> result(count);
            hash(views.data(), count, result.data());
            check(std::equal(result.begin(), result.end(), values.begin()),
                  name + " hashes of " + std::to_string(count) + " texts");
        }
    }
    check_fails([] { choose_blake2b("sse9"); },
                "vector instructions 'sse9' do not run on this processor; choose auto");
}

// More lines than the sketch holds, so that the largest hashes are dropped on the way.
void long_sketches() {
    const Scratch file;
    std::string lines;
    std::vector<std::uint64_t> all;
    for (int i = 0; i < 1000; ++i) {
        const std::string line = "line " + std::to_string(i);
        lines += line + "\n";
        all.push_back(blake2b_64(line));
    }
    write(file.name(), lines);
    std::sort(all.begin(), all.end());
    const PlainText text({file.name()}, 512);
    for (const std::size_t size : {1, 7, 300, 1000, 5000}) {
        const std::vector<std::uint64_t> smallest(all.begin(), all.begin() + std::min<int>(1000, size));
        for (const std::size_t threads : {1, 3})
            check(sketch_lines(text, {6, size}, threads)->hashes == smallest,
                  "sketch of " + std::to_string(size));
    }
}

}  // namespace

static void test_text() {
    hashes();
    long_sketches();
    pieces_concatenate_to_the_text();
    other_text_is_not_plain();
    utf8();
    extents();
    for (const std::size_t threads : {1, 3}) {
        for (const std::uint64_t piece : {1, 5, 7, 1 << 20}) words_and_ids(piece, threads);
        sketches(threads);
    }
}

static const Test registered("text", test_text);

}  // namespace chainrule::tests
