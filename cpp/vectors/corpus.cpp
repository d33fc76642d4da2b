#include "vectors/corpus.hpp"

#include <cstring>

#include "base/error.hpp"
#include "base/word_hash.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kBuffer = 1 << 16;

constexpr std::uint64_t kSeed = 0x9E3779B97F4A7C15ULL;

}  // namespace

WordCounter::WordCounter(const std::string& file)
    : file_(file), out_(file, std::ios::binary | std::ios::trunc), begins_{0}, slots_(1 << 16) {
    if (!out_) throw Failure(file + " cannot be written");
    buffer_.reserve(kBuffer);
}

std::string_view WordCounter::word(std::size_t number) const {
    return std::string_view(letters_).substr(begins_[number], begins_[number + 1] - begins_[number]);
}

void WordCounter::feed(std::string_view text) {
    if (is_finished_)
        throw Failure("the text of " + file_ + " has ended; count another one with a new counter");
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

void WordCounter::finish() {
    if (is_finished_) return;
    is_finished_ = true;
    if (!rest_.empty()) add(rest_);
    rest_.clear();
    end_sentence();
    flush();
    out_.close();
    if (!out_) throw Failure(file_ + " cannot be written to its end; is the disk full?");
}

void WordCounter::add(std::string_view word) {
    const std::uint64_t hash = word_hash(word, kSeed);
    std::size_t slot = find(word, hash);
    if (!slots_[slot]) {
        if (counts_.size() >= 0x7FFFFFFF)
            throw Failure("the text has more different words than can be numbered");
        letters_.append(word);
        begins_.push_back(letters_.size());
        counts_.push_back(0);
        hashes_.push_back(hash);
        slots_[slot] = static_cast<std::uint32_t>(counts_.size());
        if (counts_.size() * 2 > slots_.size()) {
            grow();
            slot = find(word, hash);
        }
    }
    const std::uint32_t number = slots_[slot] - 1;
    ++counts_[number];
    ++words_;
    in_sentence_ = true;
    write(static_cast<std::int32_t>(number));
}

std::size_t WordCounter::find(std::string_view word, std::uint64_t hash) const {
    std::size_t slot = hash & (slots_.size() - 1);
    while (slots_[slot]) {
        const std::size_t number = slots_[slot] - 1;
        if (hashes_[number] == hash && this->word(number) == word) break;
        slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
}

void WordCounter::grow() {
    std::vector<std::uint32_t> wider(slots_.size() * 2);
    for (std::size_t number = 0; number < hashes_.size(); ++number) {
        std::size_t slot = hashes_[number] & (wider.size() - 1);
        while (wider[slot]) slot = (slot + 1) & (wider.size() - 1);
        wider[slot] = static_cast<std::uint32_t>(number + 1);
    }
    slots_.swap(wider);
}

void WordCounter::end_sentence() {
    if (in_sentence_) write(kBreak);
    in_sentence_ = false;
}

void WordCounter::write(std::int32_t number) {
    buffer_.push_back(number);
    ++written_;
    if (buffer_.size() == kBuffer) flush();
}

void WordCounter::flush() {
    out_.write(reinterpret_cast<const char*>(buffer_.data()),
               static_cast<std::streamsize>(buffer_.size() * sizeof(std::int32_t)));
    buffer_.clear();
    if (!out_) throw Failure(file_ + " cannot be written to its end; is the disk full?");
}

NumberFile::NumberFile(const std::string& file) : file_(file), in_(file, std::ios::binary) {
    if (!in_) throw Failure(file + " cannot be read");
}

std::size_t NumberFile::read(std::uint64_t first, std::vector<std::int32_t>& into) {
    in_.clear();
    in_.seekg(static_cast<std::streamoff>(first * sizeof(std::int32_t)));
    in_.read(reinterpret_cast<char*>(into.data()),
             static_cast<std::streamsize>(into.size() * sizeof(std::int32_t)));
    if (in_.bad()) throw Failure(file_ + " cannot be read");
    return static_cast<std::size_t>(in_.gcount()) / sizeof(std::int32_t);
}

}  // namespace chainrule
