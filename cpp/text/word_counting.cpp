#include "text/word_counting.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kSlot = 16;  // bytes of a slot of WordTable, which has 4/3 to 8/3 slots per word
constexpr std::size_t kLettersPerWord = 12;  // space for letters in a table of limited size
constexpr std::size_t kRecord = 3;           // numbers of a record besides the letters: length and count
constexpr std::size_t kBuffered = 1 << 14;   // numbers buffered while a file is read or written
constexpr std::size_t kSmallest = 1 << 14;   // slots

std::size_t part_of(std::string_view word) {
    const std::uint64_t key = Word::of(word).key;
    return ((key ^ (key >> 29)) * 0xBF58476D1CE4E5B9ULL) >> 58;
}

std::size_t letter_numbers(std::size_t length) { return (length + 3) / 4; }

}  // namespace

WordCounting::WordCounting(std::size_t threads, const CountingLimit& limit)
    : counters_(std::max<std::size_t>(threads, 1)) {
    if (!limit.bytes) return;
    if (limit.folder.empty()) throw ArgumentError("the folder of the temporary file is missing");
    folder_ = std::make_shared<const SpillFolder>(SpillFolder{limit.folder, limit.bytes});
    // While a table doubles, it takes 24 bytes per new slot; a word takes two numbers and its letters.
    constexpr std::size_t kPerSlot = kSlot * 3 / 2 + (16 + kLettersPerWord) * 3 / 4;
    const std::size_t slots =
        std::bit_floor(std::max<std::size_t>(limit.bytes / counters_.size() / kPerSlot, kSmallest));
    max_words_ = slots / 4 * 3 - 1;
    max_letters_ = max_words_ * kLettersPerWord;
    for (WordCounter& counter : counters_) {  // address space; pages are taken when they are written
        counter.words.reserve(max_words_ + 1, max_letters_ + (std::size_t{1} << 12));
        counter.counts.reserve(max_words_ + 1);
    }
}

void WordCounting::spill(std::size_t thread) {
    WordCounter& counter = counters_[thread];
    const std::size_t words = counter.counts.size();
    std::vector<std::uint8_t> parts(words);
    std::vector<std::uint64_t> sizes(kParts);
    for (std::size_t i = 0; i < words; ++i) {
        const std::string_view word = counter.words.word(i);
        parts[i] = static_cast<std::uint8_t>(part_of(word));
        sizes[parts[i]] += kRecord + letter_numbers(word.size());
    }
    std::uint64_t at;
    {
        const std::lock_guard lock(mutex_);
        if (!end_) file_ = SpillFile(folder_);
        at = end_;
        for (std::size_t part = 0; part < kParts; ++part) {
            if (sizes[part]) segments_.push_back({part, end_, end_ + sizes[part]});
            end_ += sizes[part];
        }
    }
    std::vector<std::uint32_t> buffer;
    const auto flush = [&] {
        file_.write(at, buffer.data(), buffer.size());
        at += buffer.size();
        buffer.clear();
    };
    for (std::size_t part = 0; part < kParts; ++part) {
        for (std::size_t i = 0; i < words; ++i) {
            if (parts[i] != part) continue;
            const std::string_view word = counter.words.word(i);
            const std::size_t first = buffer.size() + kRecord;
            buffer.push_back(static_cast<std::uint32_t>(word.size()));
            buffer.push_back(static_cast<std::uint32_t>(counter.counts[i]));
            buffer.push_back(static_cast<std::uint32_t>(counter.counts[i] >> 32));
            buffer.resize(first + letter_numbers(word.size()));
            if (!word.empty()) std::memcpy(buffer.data() + first, word.data(), word.size());
            if (buffer.size() >= kBuffered) flush();
        }
    }
    flush();
    counter.words.clear();
    counter.counts.clear();
}

void WordCounting::finish() {
    if (counters_.size() > 1 && !folder_) {
        merge_counters_unsorted(counters_);
    } else if (counters_.size() > 1 || end_) {
        for (std::size_t thread = 0; thread < counters_.size(); ++thread)
            if (!counters_[thread].counts.empty()) spill(thread);
        counters_.clear();
    }
}

void WordCounting::for_each(const CountedWords::Visit& visit) const {
    const auto visit_all = [&](const WordCounter& counter) {
        for (std::size_t i = 0; i < counter.counts.size(); ++i)
            visit(counter.words.word(i), counter.counts[i]);
    };
    if (!counters_.empty()) visit_all(counters_.front());
    std::string letters;
    std::vector<std::uint32_t> numbers;
    for (std::size_t part = 0; part < kParts && end_; ++part) {
        WordCounter counter;
        for (const Segment& segment : segments_) {
            if (segment.part != part) continue;
            SpillReader reader(file_, kBuffered, segment.begin, segment.end);
            for (std::uint64_t at = segment.begin; at < segment.end;) {
                const std::uint32_t* const record = reader.next(kRecord);
                const std::size_t length = record[0], stored = letter_numbers(length);
                const std::uint64_t count = record[1] | std::uint64_t{record[2]} << 32;
                numbers.resize(stored);
                for (std::size_t from = 0; from < stored; from += kBuffered) {
                    const std::size_t size = std::min(kBuffered, stored - from);
                    std::copy_n(reader.next(size), size, numbers.begin() + static_cast<std::ptrdiff_t>(from));
                }
                letters.assign(reinterpret_cast<const char*>(numbers.data()), length);
                counter.add(Word::of(letters), count);
                at += kRecord + stored;
            }
        }
        visit_all(counter);
    }
}

}  // namespace chainrule
