#include "vectors/corpus.hpp"

#include "base/error.hpp"

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
