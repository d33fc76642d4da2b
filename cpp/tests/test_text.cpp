// Texts: blocks of lines, words, ids, hashes. tests/test_prepare_corpus.py compares the results with the
// Python implementation.
#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "checks.hpp"
#include "text/blake2b/blake2b.hpp"
#include "text/encode.hpp"
#include "text/input/in_order.hpp"
#include "text/input/text_reader.hpp"
#include "text/line_sketch.hpp"
#include "text/lines.hpp"
#include "text/utf8.hpp"
#include "text/words.hpp"

namespace chainrule::tests {

namespace {

// An input that returns the bytes of a text, three at a time.
TextInput input_of(const std::string& text, TextFormat format = TextFormat::lines) {
    const auto read = [text, at = std::size_t{0}](TextBlock& block) mutable {
        const std::string_view part = std::string_view(text).substr(std::min(at, text.size()), 3);
        block.bytes += part;
        at += part.size();
        return !part.empty();
    };
    return {format, 0, 0, read};
}

TextOptions options_of(std::size_t block) {
    TextOptions options;
    options.block = block;
    options.column = "text";
    options.convert = [](const TextBlock& converted) -> std::pair<std::string, std::uint64_t> {
        throw IoError("input " + std::to_string(converted.input) + ", byte " +
                      std::to_string(converted.offset) + ", line " + std::to_string(converted.first));
    };
    return options;
}

// All lines of the inputs, read in blocks of `block` bytes.
std::string read_all(std::vector<TextInput> inputs, const TextOptions& options) {
    TextReader text(std::move(inputs), options);
    std::string all;
    while (const std::optional<std::string> lines = text.next_lines()) all += *lines;
    return all;
}

void blocks_concatenate_to_the_text() {
    for (const std::string text : {"a\n", "a", "\n", "\n\n\na b\n\n c d", "ab\ncd\nef\n",
                                   "\xC3\xA9\n\xE2\x80\xA8x", "a\r\n\rb\r", "\xEF\xBB\xBF\xEF\xBB\xBFx"}) {
        std::string ended = text.starts_with("\xEF") ? text.substr(3) : text;
        if (text.starts_with("a\r")) ended = "a\n\nb\n";
        if (ended.back() != '\n') ended += '\n';
        for (std::size_t block = 1; block < 16; ++block) {
            check(
                read_all({input_of(text), input_of(""), input_of(text)}, options_of(block)) == ended + ended,
                "blocks of " + std::to_string(block));
        }
    }
    TextOptions options = options_of(4);
    options.drops_blank_lines = true;
    check(read_all({input_of("\n a\n \t\n\nb ")}, options) == " a\nb \n", "blank lines are dropped");
}

void json_lines() {
    const std::string records =
        "{\"text\": \"a\\n\\u00e9\\ud83d\\ude00\", \"n\": [1.5e3, null]}\r\n\n{\"text\": \"\", \"a\": "
        "{\"text\": 1}}\n"
        "{\"\\u0074ext\" : \"b\\r\\nc\\n\"}";
    for (const std::size_t block : {1, 40, 1000}) {
        check(read_all({input_of(records, TextFormat::json)}, options_of(block)) ==
                  "a\n\xC3\xA9\xF0\x9F\x98\x80\n\nb\nc\n",
              "JSON Lines");
    }
    for (const char* record :
         {"{\"text\": 1}", "{\"text\": \"\\ud800\"}", "{\"text\": \"a\"", "[]", "{\"n\": 01}",
          "{\"text\": \"a\"} x", "{\"text\": \"a\tb\"}", "{}", "{\"text\": \"\\u00g0\"}"}) {
        const std::string text = "{\"text\": \"fine\"}\n" + std::string(record) + "\n";
        check_fails([&] { read_all({input_of(text, TextFormat::json)}, options_of(1)); },
                    "input 0, byte 17, line 1");
    }
}

void documents() {
    int calls = 0;
    const auto read = [&calls](TextBlock& block) {
        block.bytes = "a\rb\xC3\xA9";
        block.ends = {0, 2, 5};
        return calls++ < 2;
    };
    check(
        read_all({{TextFormat::documents, 0, 0, read}}, options_of(1)) == "\na\nb\xC3\xA9\n\na\nb\xC3\xA9\n",
        "documents");
    const auto divided = [&calls](TextBlock& block) {
        block.bytes = "\xC3\xA9";
        block.ends = {1, 2};
        return true;
    };
    check_fails([&] { read_all({{TextFormat::documents, 0, 0, divided}}, options_of(1)); },
                "input 0, byte 0, line 0");
}

void long_lines() {
    const auto segments_of = [](std::string_view lines) {
        std::vector<std::string_view> segments;
        split_long_lines(lines, 5, segments);
        std::string joined;
        for (const std::string_view segment : segments) (joined += segment) += '|';
        return joined;
    };
    check(segments_of("a\nbcdef\n\n") == "a\nbcdef\n\n|", "lines that are not long");
    // Before the last blank that is not followed by white space; without a blank, after five characters.
    check(segments_of("x\nab cd ef\ny\n") == "x\n|ab| cd| ef\ny\n|", "cut before a word");
    check(segments_of("abcdefgh\n") == "abcde|fgh\n|", "a long word");
    check(segments_of("\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\n") ==
              "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\n|",
          "characters are counted");
    check(segments_of("a \xC2\xA0\xC2\xA0 b c\n") == "a \xC2\xA0\xC2\xA0| b c\n|", "white space");
    check(has_long_word("ab abc\nabcd", 3) && !has_long_word("ab abc\n\xC3\xA9 abc", 3), "long words");
    TextOptions options = options_of(1);
    options.longest = 8;
    TextReader text({input_of("short\nlonger than that\n")}, options);
    check(!text.for_each_piece(2, [](std::size_t, const TextPiece&) {}), "a line that is too long");
}

// The exception of the first piece is rethrown, whichever thread is faster.
void first_fault() {
    for (int i = 0; i < 20; ++i) {
        TextReader text({input_of("a\nb\nc\nd\ne\nf\n")}, options_of(1));
        InOrder<std::string> in_order([](const std::string&) {}, 1);
        const auto work = [&](std::size_t, const TextPiece& piece) {
            if (piece.text != "a\n") throw IoError("piece " + std::to_string(piece.number));
            in_order.add(piece.number, piece.text);
        };
        check_fails([&] { text.for_each_piece(3, work, [&] { in_order.stop(); }); }, "piece 1");
    }
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
    const Scratch numbers;
    const auto reader = [&] {
        return TextReader({input_of("b a b\n\n  a\tlonger-than-eight b \nz longer-than-eight")},
                          options_of(piece));
    };
    TextReader text = reader();
    WordCounting counting(threads, {});
    check(count_words(text, {}, threads, counting), "plain");
    counting.finish();
    const auto [words, counts] =
        CountedWords([&](const CountedWords::Visit& visit) { counting.for_each(visit); }, {}).sorted();
    std::string order;
    for (std::size_t i = 0; i < counts.size(); ++i)
        order += std::string(words.name(i)) + "=" + std::to_string(counts[i]) + " ";
    check(order == "b=3 a=2 longer-than-eight=2 z=1 ", "by count, then by bytes: " + order);

    auto names = std::make_shared<WordList>();
    for (const char* const name : {"?", "a", "b", "<s>", "</s>"}) names->add(name);
    const WordEncoding encoding{std::make_shared<WordVocabulary>(names, 2), 0, 4};
    const std::vector<std::int32_t> expected{2, 1, 2, 4, 4, 1, 0, 2, 4, 0, 0, 4};
    std::string received;
    const OnLines receive = [&](const std::string& lines) { received += lines; };
    TextReader second = reader();
    WordCounting unknown(threads, {});
    const std::optional<EncodedWords> result =
        encode_words(second, encoding, numbers.name(), {1, 10}, threads, unknown, receive);
    check(received == "b a b\n\n  a\tlonger-than-eight b \nz longer-than-eight\n", "lines in order");
    unknown.finish();
    std::map<std::string, std::uint64_t> spelled;
    unknown.for_each([&](std::string_view word, std::uint64_t count) { spelled[std::string(word)] = count; });
    check(spelled == std::map<std::string, std::uint64_t>{{"longer-than-eight", 2}, {"z", 1}},
          "unknown words");
    // "b a b", "", "a longer-than-eight b", "z longer-than-eight": 5 + 0 + 21 + 19, and four line ends.
    check(result->sizes.words == 8 && result->sizes.lines == 4, "words and lines");
    check(result->sizes.characters == 49 && result->sizes.bytes == 49, "characters and bytes");
    std::vector<std::int32_t> read(expected.size() + 1);
    std::ifstream in(numbers.name(), std::ios::binary);
    in.read(reinterpret_cast<char*>(read.data()), static_cast<std::streamsize>(read.size() * 4));
    check(in.gcount() == static_cast<std::streamsize>(expected.size() * 4), "ids in the file");
    check(std::equal(expected.begin(), expected.end(), read.begin()), "the same in the file");
    check_fails([&] { encode_words(second, encoding, "/nowhere/ids", {}, threads, unknown); },
                "/nowhere/ids cannot be written");

    // The same in memory, in one pass.
    received.clear();
    TextReader third = reader(), fourth = reader();
    const std::optional<EncodedText> in_memory = encode_text(third, encoding, {1, 10}, threads, receive);
    check(received == "b a b\n\n  a\tlonger-than-eight b \nz longer-than-eight\n", "lines in order");
    check(std::equal(expected.begin(), expected.end(), in_memory->ids.begin(), in_memory->ids.end()),
          "the same in memory");
    std::string in_order;
    for (const auto& [table, number] : in_memory->spellings)
        in_order += std::string(in_memory->spelled[table].word(number)) + " ";
    check(in_order == "longer-than-eight z longer-than-eight ", "unknown words in memory: " + in_order);
    check(in_memory->sizes.words == 8 && in_memory->sizes.lines == 4, "words and lines in memory");
    check(in_memory->sizes.characters == 49 && in_memory->sizes.bytes == 49,
          "characters and bytes in memory");
    const std::optional<Sketch> sketch = sketch_lines(fourth, {1, 10}, threads);
    check(in_memory->sketch.hashes == sketch->hashes && result->sketch.hashes == sketch->hashes,
          "sketch in memory");

    // One scan gives the same counts, ids, spellings and sizes, and passes the text on in order.
    received.clear();
    TextReader fifth = reader();
    std::optional<TextScan> scan = scan_text(fifth, {}, {1, 10}, threads, receive);
    check(received == "b a b\n\n  a\tlonger-than-eight b \nz longer-than-eight\n", "the text in order");
    order.clear();
    for (const std::uint32_t i : scan->words().order)
        order +=
            std::string(scan->words().words.word(i)) + "=" + std::to_string(scan->words().counts[i]) + " ";
    check(order == "b=3 a=2 longer-than-eight=2 z=1 ", "counts of the scan: " + order);
    check(scan->sizes().words == 8 && scan->sizes().lines == 4, "words and lines of the scan");
    check(scan->sizes().characters == 49 && scan->sizes().bytes == 49, "characters and bytes of the scan");
    check(scan->sketch().hashes == sketch->hashes, "sketch of the scan");
    check(scan->sketch().lines == 4, "lines of the sketch");
    std::vector<std::int32_t> ids(scan->words().counts.size(), 0);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (scan->words().words.word(i) == "a") ids[i] = 1;
        if (scan->words().words.word(i) == "b") ids[i] = 2;
    }
    const ScannedIds encoded = scan->encode(ids, 0, 4, threads);
    check(std::equal(expected.begin(), expected.end(), encoded.ids.begin(), encoded.ids.end()), "ids");
    in_order.clear();
    for (const std::uint32_t number : encoded.unknown)
        in_order += std::string(scan->words().words.word(number)) + " ";
    check(in_order == "longer-than-eight z longer-than-eight ", "unknown words of the scan: " + in_order);
    check_fails([&] { scan->encode(ids, 0, 4, threads); }, "the text is already encoded; scan it again");
}

void sketches(std::size_t threads) {
    const TextInput input = input_of("two lines\n\ntwo lines\nshort\nanother one\n");
    TextReader text({input}, options_of(4)), again({input}, options_of(4));
    const std::uint64_t one = blake2b_64("two lines"), two = blake2b_64("another one");
    const std::optional<Sketch> both = sketch_lines(text, {6, 5}, threads),
                                least = sketch_lines(again, {6, 1}, threads);
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
    std::string lines;
    std::vector<std::uint64_t> all;
    for (int i = 0; i < 1000; ++i) {
        const std::string line = "line " + std::to_string(i);
        lines += line + "\n";
        all.push_back(blake2b_64(line));
    }
    std::sort(all.begin(), all.end());
    for (const std::size_t size : {1, 7, 300, 1000, 5000}) {
        const std::vector<std::uint64_t> smallest(all.begin(), all.begin() + std::min<int>(1000, size));
        for (const std::size_t threads : {1, 3}) {
            TextReader text({input_of(lines)}, options_of(512));
            check(sketch_lines(text, {6, size}, threads)->hashes == smallest,
                  "sketch of " + std::to_string(size));
        }
    }
}

}  // namespace

static void test_text() {
    hashes();
    long_sketches();
    blocks_concatenate_to_the_text();
    json_lines();
    documents();
    long_lines();
    first_fault();
    utf8();
    extents();
    for (const std::size_t threads : {1, 3}) {
        for (const std::uint64_t piece : {1, 5, 7, 1 << 20}) words_and_ids(piece, threads);
        sketches(threads);
    }
}

static const Test registered("text", test_text);

}  // namespace chainrule::tests
