#include "vectors/corpus.hpp"

#include <algorithm>
#include <numeric>

#include "base/byte_stream.hpp"
#include "base/error.hpp"
#include "vectors/cooccurrence.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kBuffer = 1 << 16;

}  // namespace

WordIdWriter::WordIdWriter(const std::string& file)
    : file_(file), out_(file, std::ios::binary | std::ios::trunc) {
    if (!out_) throw IoError(file + " cannot be written");
    buffer_.reserve(kBuffer);
}

void WordIdWriter::feed(std::string_view text) {
    if (is_finished_)
        throw ArgumentError("the text of " + file_ + " has ended; count another one with a new counter");
    std::size_t begin = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c != ' ' && c != '\t' && c != '\n') continue;
        if (!rest_.empty()) {
            rest_.append(text.substr(begin, i - begin));
            add(rest_);
            rest_.clear();
        } else if (i > begin) {
            add(text.substr(begin, i - begin));
        }
        begin = i + 1;
        if (c == '\n') end_sentence();
    }
    rest_.append(text.substr(begin));
}

void WordIdWriter::finish() {
    if (is_finished_) return;
    is_finished_ = true;
    if (!rest_.empty()) add(rest_);
    rest_.clear();
    end_sentence();
    flush();
    out_.close();
    if (!out_) throw IoError(file_ + " cannot be written to its end; is the disk full?");
}

void WordIdWriter::add(std::string_view word) {
    const std::uint32_t number = table_.add(Word::of(word));
    if (number == counts_.size()) counts_.push_back(0);
    ++counts_[number];
    ++words_;
    in_sentence_ = true;
    write(static_cast<std::int32_t>(number));
}

void WordIdWriter::end_sentence() {
    if (in_sentence_) write(kSentenceEnd);
    in_sentence_ = false;
}

void WordIdWriter::write(std::int32_t number) {
    buffer_.push_back(number);
    ++written_;
    if (buffer_.size() == kBuffer) flush();
}

void WordIdWriter::flush() {
    out_.write(reinterpret_cast<const char*>(buffer_.data()),
               static_cast<std::streamsize>(buffer_.size() * sizeof(std::int32_t)));
    buffer_.clear();
    if (!out_) throw IoError(file_ + " cannot be written to its end; is the disk full?");
}

namespace {

void write_summary(ByteWriter& out, std::uint64_t types, std::uint64_t words, std::uint64_t highest) {
    out.varint(types);
    out.varint(words);
    out.varint(highest);
}

void write_word(ByteWriter& out, std::string_view word, std::uint64_t count, std::uint64_t position) {
    out.varint(count);
    out.varint(position);
    out.varint(word.size());
    out.raw(word);
}

}  // namespace

std::vector<std::string> WordIdWriter::records(std::uint32_t parts, std::uint32_t partition) const {
    std::vector<ByteWriter> writers(parts);
    for (ByteWriter& writer : writers) write_summary(writer, 0, 0, 0);
    for (std::size_t number = 0; number < counts_.size(); ++number) {
        const std::string_view word = table_.word(number);
        const std::uint64_t hash = mixed(Word::of(word).key, 0) >> 32;  // not the hash of WordTable
        write_word(writers[hash * parts >> 32], word, counts_[number],
                   std::uint64_t{partition} << 32 | number);
    }
    std::vector<std::string> records;
    for (ByteWriter& writer : writers) records.push_back(writer.take());
    return records;
}

void WordSums::add(std::string_view record) {
    ByteReader in(record);
    left_out_.types += in.varint();
    left_out_.words += in.varint();
    left_out_.highest = std::max(left_out_.highest, in.varint());
    while (!in.is_at_end()) {
        const std::uint64_t count = in.varint(), position = in.varint(), size = in.varint();
        const std::uint32_t number = table_.add(Word::of(in.raw(size)));
        if (number == counts_.size()) {
            counts_.push_back(0);
            positions_.push_back(position);
        }
        counts_[number] += count;
        positions_[number] = std::min(positions_[number], position);
    }
}

std::string WordSums::record(std::uint64_t min_count) const {
    ByteWriter out;
    Summary summary = left_out_;
    for (const std::uint64_t count : counts_) {
        if (count >= min_count) continue;
        ++summary.types;
        summary.words += count;
        summary.highest = std::max(summary.highest, count);
    }
    write_summary(out, summary.types, summary.words, summary.highest);
    for (std::uint32_t number = 0; number < counts_.size(); ++number) {
        if (counts_[number] >= min_count)
            write_word(out, table_.word(number), counts_[number], positions_[number]);
    }
    return out.take();
}

std::vector<std::uint32_t> WordSums::ranked(std::size_t limit) const {
    std::vector<std::uint32_t> numbers(counts_.size());
    std::iota(numbers.begin(), numbers.end(), 0U);
    const auto is_before = [&](std::uint32_t a, std::uint32_t b) {
        return counts_[a] != counts_[b] ? counts_[a] > counts_[b] : positions_[a] < positions_[b];
    };
    std::sort(numbers.begin(), numbers.end(), is_before);
    numbers.resize(std::min(limit, numbers.size()));
    return numbers;
}

std::uint64_t WordSums::words() const {
    return std::accumulate(counts_.begin(), counts_.end(), left_out_.words);
}

std::uint64_t WordSums::highest_count() const {
    return std::accumulate(counts_.begin(), counts_.end(), left_out_.highest,
                           [](std::uint64_t a, std::uint64_t b) { return std::max(a, b); });
}

WordIndex::WordIndex(std::string_view words) {
    for (std::size_t begin = 0; begin < words.size();) {
        const std::size_t end = words.find('\n', begin);
        if (end == std::string_view::npos)
            throw ArgumentError("the last word must be followed by a line feed");
        table_.add(Word::of(words.substr(begin, end - begin)));
        begin = end + 1;
    }
}

std::vector<std::int32_t> WordIndex::ids_of(const WordIdWriter& text) const {
    std::vector<std::int32_t> ids(text.types());
    for (std::size_t number = 0; number < ids.size(); ++number)
        ids[number] = static_cast<std::int32_t>(table_.find(Word::of(text.word(number))));  // kNone is −1
    return ids;
}

WordIdFile::WordIdFile(const std::string& file) : file_(file), in_(file, std::ios::binary) {
    if (!in_) throw IoError(file + " cannot be read");
}

std::size_t WordIdFile::read(std::uint64_t first, std::vector<std::int32_t>& into) {
    in_.clear();
    in_.seekg(static_cast<std::streamoff>(first * sizeof(std::int32_t)));
    in_.read(reinterpret_cast<char*>(into.data()),
             static_cast<std::streamsize>(into.size() * sizeof(std::int32_t)));
    if (in_.bad()) throw IoError(file_ + " cannot be read");
    return static_cast<std::size_t>(in_.gcount()) / sizeof(std::int32_t);
}

}  // namespace chainrule
