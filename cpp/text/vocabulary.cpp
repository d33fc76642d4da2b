#include "text/vocabulary.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <map>
#include <numeric>
#include <span>

#include "base/error.hpp"
#include "text/utf8.hpp"

namespace chainrule {

namespace {

constexpr std::string_view kIndent = "      ";

// The first eight bytes of a word as a number that sorts like them.
std::uint64_t first_bytes(std::string_view word) {
    std::array<unsigned char, 8> bytes{};
    if (!word.empty()) std::memcpy(bytes.data(), word.data(), std::min<std::size_t>(word.size(), 8));
    std::uint64_t key = 0;
    for (const unsigned char byte : bytes) key = key << 8 | byte;
    return key;
}

// Sorts the numbers of words with equal counts by the bytes of the words.
void sort_by_bytes(const WordList& words, std::span<std::uint32_t> numbers) {
    struct Key {
        std::uint64_t bytes;
        std::uint32_t number;
    };
    UninitializedBuffer<Key> keys(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i)
        keys[i] = {first_bytes(words.name(numbers[i])), numbers[i]};
    std::sort(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
        if (a.bytes != b.bytes) return a.bytes < b.bytes;
        return words.name(a.number) < words.name(b.number);  // char_traits<char> compares as unsigned
    });
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = keys[i].number;
}

// Appends a JSON string as serde_json writes it.
void append_json_string(std::string_view text, std::string& out) {
    constexpr std::string_view kHex = "0123456789abcdef";
    out += '"';
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte >= 0x20) {
            out += c;
        } else {
            constexpr std::string_view kCodes = "\b\t\n\f\r", kLetters = "btnfr";
            const std::size_t short_form = kCodes.find(c);
            out += '\\';
            if (short_form != std::string_view::npos) {
                out += kLetters[short_form];
            } else {
                out += "u00";
                out += kHex[byte >> 4];
                out += kHex[byte & 15];
            }
        }
    }
    out += '"';
}

// Reads a JSON string written by append_json_string, `at` being behind the opening quotation mark, and moves
// `at` behind the closing one; false if there is none.
bool read_json_string(const char*& at, const char* end, std::string& text) {
    text.clear();
    while (at < end) {
        const char* const plain = at;
        while (at < end && *at != '"' && *at != '\\' && static_cast<unsigned char>(*at) >= 0x20) ++at;
        text.append(plain, at);
        if (at == end || static_cast<unsigned char>(*at) < 0x20) return false;
        if (*at++ == '"') return true;
        if (at == end) return false;
        constexpr std::string_view kLetters = "\"\\btnfr", kCodes = "\"\\\b\t\n\f\r";
        const std::size_t short_form = kLetters.find(*at);
        if (short_form != std::string_view::npos) {
            text += kCodes[short_form];
            ++at;
            continue;
        }
        unsigned code = 0;
        if (end - at < 5 || std::memcmp(at, "u00", 3) != 0) return false;
        const auto [stop, error] = std::from_chars(at + 3, at + 5, code, 16);
        if (error != std::errc() || stop != at + 5 || code >= 0x20) return false;
        text += static_cast<char>(code);
        at += 5;
    }
    return false;
}

bool skip(const char*& at, const char* end, std::string_view expected) {
    if (static_cast<std::size_t>(end - at) < expected.size() ||
        std::memcmp(at, expected.data(), expected.size()) != 0)
        return false;
    at += expected.size();
    return true;
}

}  // namespace

WordVocabulary::WordVocabulary(std::shared_ptr<const WordList> names, std::size_t controls)
    : names_(std::move(names)), words_(names_->size() - controls) {
    if (names_->size() < controls || names_->size() > 0x7FFFFFFF)
        throw ArgumentError("a vocabulary has 1 to 2^31 − 1 words");
    slots_ = UninitializedBuffer<Slot>(words_ + words_ / 2 + 1, Access::scattered);
    std::memset(static_cast<void*>(slots_.data()), 0, slots_.size() * sizeof(Slot));
    constexpr std::size_t kAhead = 16;  // words whose slots are prefetched
    std::array<std::uint64_t, kAhead> keys{};
    for (std::size_t i = 0; i < words_ + kAhead; ++i) {
        if (i >= kAhead) {
            const std::size_t id = i - kAhead;
            const std::string_view letters = name(id);
            const std::uint64_t key = keys[id % kAhead];
            if (letters.size() > 0xFFFFFFFF) throw ArgumentError("a word is longer than 4 GB");
            std::size_t at = home(key);
            while (slots_[at].number) {
                if (slots_[at].key == key && slots_[at].length == letters.size() &&
                    name(slots_[at].number - 1) == letters)
                    throw ArgumentError("the word '" + std::string(letters.substr(0, 40)) +
                                        "' occurs twice in the vocabulary");
                at = at + 1 == slots_.size() ? 0 : at + 1;
            }
            slots_[at] = {key, static_cast<std::uint32_t>(letters.size()),
                          static_cast<std::uint32_t>(id + 1)};
        }
        if (i < words_) {
            keys[i % kAhead] = Word::of(name(i)).key;
            prefetch(slots_.data() + home(keys[i % kAhead]));
        }
    }
}

void append_json_entries(const WordVocabulary& vocabulary, std::size_t from, std::size_t to,
                         std::string& out) {
    for (std::size_t id = from; id < to; ++id) {
        out += kIndent;
        append_json_string(vocabulary.name(id), out);
        out += ": ";
        out += std::to_string(id);
        out += id + 1 == vocabulary.words() ? "\n" : ",\n";
    }
}

std::optional<WordVocabulary> read_json_entries(std::string_view entries,
                                                const std::vector<std::string>& controls) {
    auto names = std::make_shared<WordList>();
    // A line has at least 6 + 4 + 2 bytes besides the word, and an id of two digits or more after the tenth.
    names->reserve(
        static_cast<std::size_t>(std::count(entries.begin(), entries.end(), '\n')) + controls.size(),
        entries.size() > 15 ? entries.size() * 2 / 5 : 0);
    const char* at = entries.data();
    const char* const end = at + entries.size();
    std::string word;
    while (at < end) {
        if (!skip(at, end, kIndent) || !skip(at, end, "\"") || !read_json_string(at, end, word)) return {};
        if (!is_utf8(word) || std::ranges::find(controls, word) != controls.end()) return {};
        if (!skip(at, end, ": ") || !skip(at, end, std::to_string(names->size()))) return {};
        names->add(word);
        if (skip(at, end, ",\n")) continue;
        if (!skip(at, end, "\n") || at != end) return {};
    }
    if (entries.empty() || entries.substr(entries.size() - 2) == ",\n") return {};
    for (const std::string& control : controls) names->add(control);
    try {
        return WordVocabulary(std::move(names), controls.size());
    } catch (const ArgumentError&) {
        return {};
    }
}

CountedWords::CountedWords(ForEach for_each, std::vector<std::string> excluded)
    : for_each_(std::move(for_each)), excluded_(std::move(excluded)), excluded_counts_(excluded_.size()) {
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>, std::greater<>> bins;
    for_each_([&](std::string_view word, std::uint64_t count) {
        const auto name = std::ranges::find(excluded_, word);
        if (name != excluded_.end()) {
            excluded_counts_[static_cast<std::size_t>(name - excluded_.begin())] += count;
            return;
        }
        auto& [words, letters] = bins[count];
        ++words;
        letters += word.size();
        ++types_;
    });
    for (const auto& [count, bin] : bins) bins_.push_back({count, bin.first, bin.second});
}

void CountedWords::for_each(const Visit& visit) const {
    for_each_([&](std::string_view word, std::uint64_t count) {
        if (!is_excluded(word)) visit(word, count);
    });
}

bool CountedWords::is_excluded(std::string_view word) const {
    return std::ranges::find(excluded_, word) != excluded_.end();
}

std::uint64_t CountedWords::occurrences() const {
    std::uint64_t all = 0;
    for (const Bin& bin : bins_) all += bin.count * bin.words;
    return all;
}

std::uint64_t CountedWords::types_from(std::uint64_t count) const {
    std::uint64_t words = 0;
    for (const Bin& bin : bins_)
        if (bin.count >= count) words += bin.words;
    return words;
}

CountedWords::Selected CountedWords::most_frequent(std::uint64_t most) const {
    std::uint64_t least = 0, words = 0, letters = 0;  // least count of a selected word
    for (const Bin& bin : bins_) {
        if (words >= most) break;
        least = bin.count;
        words += bin.words;
        letters += bin.letters;
    }
    if (words > 0x7FFFFFF0) throw Error("the text has more different words than can be numbered");
    Selected selected;
    if (most == 0) return selected;
    selected.words.reserve(words, letters);
    selected.counts.reserve(words);
    for_each([&](std::string_view word, std::uint64_t count) {
        if (count < least) return;
        selected.words.add(word);
        selected.counts.push_back(count);
    });
    // First by count into places known from the bins, then within each count.
    std::vector<std::uint32_t>& order = selected.order;
    order.resize(selected.counts.size());
    std::map<std::uint64_t, std::size_t> places;
    std::size_t place = 0;
    for (const Bin& bin : bins_) {
        if (place >= order.size()) break;
        places[bin.count] = place;
        place += bin.words;
    }
    for (std::size_t i = 0; i < order.size(); ++i)
        order[places.find(selected.counts[i])->second++] = static_cast<std::uint32_t>(i);
    std::size_t begin = 0;
    for (const Bin& bin : bins_) {
        if (begin >= order.size()) break;
        sort_by_bytes(selected.words, std::span(order).subspan(begin, bin.words));
        begin += bin.words;
    }
    order.resize(std::min<std::uint64_t>(order.size(), most));
    return selected;
}

WordList CountedWords::select(std::uint64_t most, const std::vector<std::string>& first,
                              const std::vector<std::string>& last) const {
    Selected selected = most_frequent(most);
    std::vector<std::uint64_t>().swap(selected.counts);
    std::size_t letters = 0;
    for (const std::uint32_t number : selected.order) letters += selected.words.name(number).size();
    for (const auto* names : {&first, &last})
        for (const std::string& name : *names) letters += name.size();
    WordList result;
    result.reserve(selected.order.size() + first.size() + last.size(), letters);
    for (const std::string& name : first) result.add(name);
    for (const std::uint32_t number : selected.order) result.add(selected.words.name(number));
    for (const std::string& name : last) result.add(name);
    return result;
}

std::pair<WordList, std::vector<std::uint64_t>> CountedWords::sorted() const {
    const Selected selected = most_frequent(types_);
    std::pair<WordList, std::vector<std::uint64_t>> result;
    result.first.reserve(selected.order.size(), selected.words.letters().size());
    result.second.reserve(selected.order.size());
    for (const std::uint32_t number : selected.order) {
        result.first.add(selected.words.name(number));
        result.second.push_back(selected.counts[number]);
    }
    return result;
}

}  // namespace chainrule
