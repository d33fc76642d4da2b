#include "ngram/partition/word_records.hpp"

#include <memory>

#include "base/byte_stream.hpp"
#include "text/utf8.hpp"

namespace chainrule {

namespace {

// FNV-1a with a final mix: the same for every machine and version.
std::uint32_t hash_of(std::string_view word) {
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    for (const char c : word) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    return static_cast<std::uint32_t>((hash ^ hash >> 32) * 0x9E3779B97F4A7C15ULL >> 32);
}

void put(ByteWriter& out, std::string_view word, std::uint64_t count) {
    out.varint(word.size());
    out.raw(word);
    out.varint(count);
}

}  // namespace

void BlockCounter::add(std::string_view lines, bool ends_line) {
    sketcher_.add_lines(lines);
    TextSize size = measure_text(lines);
    if (!ends_line) size.lines = 0;
    size_.add(size);
    std::string buffer;
    const auto on_end = [&] {
        if (!ends_line) return;
        filled_ += !is_empty_;
        is_empty_ = true;
    };
    const std::string_view words = counts_words_ ? splitting_.apply(lines, buffer) : lines;
    scan_words(
        words,
        [&](const Word& word) {
            if (counts_words_) words_.add(word, 1);
            is_empty_ = false;
        },
        on_end);
}

TextCounts BlockCounter::sizes() const {
    TextCounts counts;
    counts.add(size_, filled_);
    return counts;
}

std::vector<std::pair<std::uint32_t, std::string>> BlockCounter::records(std::uint32_t parts) const {
    std::vector<ByteWriter> writers(parts);
    for (std::size_t i = 0; i < words_.counts.size(); ++i) {
        const std::string_view word = words_.words.word(i);
        put(writers[hash_of(word) % parts], word, words_.counts[i]);
    }
    std::vector<std::pair<std::uint32_t, std::string>> result;
    for (std::uint32_t part = 0; part < parts; ++part)
        if (writers[part].size()) result.emplace_back(part, writers[part].take());
    return result;
}

bool has_long_line(std::string_view lines) {
    bool is_long = false;
    for_each_line(lines, [&](std::string_view line) {
        is_long |= line.size() > kLongestLine && count_characters(line) > kLongestLine;
    });
    return is_long;
}

WordCounts add_word_counts(const std::vector<std::string_view>& records) {
    std::vector<WordCounter> sums(1);
    for (const std::string_view record : records) {
        ByteReader in(record);
        while (!in.is_at_end()) {
            const std::string_view word = in.raw(in.varint());
            sums.front().add(Word::of(word), in.varint());
        }
    }
    return merge_counters(sums);
}

std::string word_count_record(const WordCounts& counts) {
    ByteWriter out;
    for (const std::uint32_t number : counts.order)
        put(out, counts.words.word(number), counts.counts[number]);
    return out.take();
}

std::string encoding_record(const WordEncoding& encoding) {
    ByteWriter out;
    out.number(encoding.unknown);
    out.number(encoding.end);
    out.varint(encoding.splitting.is_on);
    out.varint(encoding.splitting.placeholder.size());
    out.raw(encoding.splitting.placeholder);
    const WordVocabulary& vocabulary = *encoding.vocabulary;
    out.varint(vocabulary.size() - vocabulary.words());
    for (std::size_t id = 0; id < vocabulary.size(); ++id) {
        out.varint(vocabulary.name(id).size());
        out.raw(vocabulary.name(id));
    }
    return out.take();
}

WordEncoding read_encoding(std::string_view record) {
    ByteReader in(record);
    WordEncoding encoding{};
    encoding.unknown = in.number<std::int32_t>();
    encoding.end = in.number<std::int32_t>();
    encoding.splitting.is_on = in.varint() != 0;
    encoding.splitting.placeholder = in.raw(in.varint());
    const std::size_t controls = in.varint();
    auto names = std::make_shared<WordList>();
    while (!in.is_at_end()) names->add(in.raw(in.varint()));
    if (controls > names->size()) ByteReader::fail();
    encoding.vocabulary = std::make_shared<const WordVocabulary>(std::move(names), controls);
    return encoding;
}

}  // namespace chainrule
