// Numbers written to a file by several threads, each at its place.
#include "text/encode.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "text/words.hpp"

namespace chainrule {

namespace {

class NumberOutput {
  public:
    explicit NumberOutput(const std::string& file) : file_(file), out_(file, std::ios::binary) { check(); }

    void write(std::uint64_t begin, std::span<const std::int32_t> numbers) {
        const std::lock_guard lock(mutex_);
        out_.seekp(static_cast<std::streamoff>(begin * sizeof(std::int32_t)));
        out_.write(reinterpret_cast<const char*>(numbers.data()),
                   static_cast<std::streamsize>(numbers.size_bytes()));
        check();
    }

    void close() {
        out_.close();
        check();
    }

  private:
    void check() const {
        if (!out_) throw Failure(file_ + " cannot be written; check that the disk has room for it");
    }

    std::string file_;
    std::ofstream out_;
    std::mutex mutex_;
};

constexpr std::uint64_t kOnes = 0x0101010101010101ULL, kHigh = kOnes << 7;

// The high bit of exactly those bytes of `x` that are `c`.
constexpr std::uint64_t all_bytes_that_are(char c, std::uint64_t x) {
    x ^= kOnes * static_cast<unsigned char>(c);
    return ~(((x & ~kHigh) + ~kHigh) | x) & kHigh;
}

// Eight counts, one for each place in eight bytes, that are added up before one of them is full.
class Tally {
  public:
    void add(std::uint64_t high_bits) { places_ += high_bits >> 7; }
    std::uint64_t sum() const {
        constexpr std::uint64_t even = 0x00FF00FF00FF00FFULL;
        return ((places_ & even) + (places_ >> 8 & even)) * 0x0001000100010001ULL >> 48;
    }

  private:
    std::uint64_t places_ = 0;
};

constexpr std::size_t kFull = 255;

// Counts as many whole eights of `text` as a tally holds; how many bytes that were.
std::size_t count_eights(std::string_view text, bool& is_cut_before, Extent& found) {
    Tally words, lines, letters, characters;
    std::uint64_t carried = is_cut_before ? 0x80 : 0;
    const std::size_t eights = std::min(text.size() / 8, kFull);
    for (std::size_t i = 0; i < eights; ++i) {
        std::uint64_t x;
        std::memcpy(&x, text.data() + 8 * i, 8);
        const std::uint64_t ends = all_bytes_that_are('\n', x);
        const std::uint64_t cuts = ends | all_bytes_that_are(' ', x) | all_bytes_that_are('\t', x);
        const std::uint64_t own = ~cuts & kHigh;
        const std::uint64_t continued = x & ~(x << 1) & kHigh;  // 10…: within a character
        words.add(own & (cuts << 8 | carried));
        lines.add(ends);
        letters.add(own);
        characters.add(own & ~continued);
        carried = cuts >> 56;
    }
    is_cut_before = carried;
    found.words += words.sum();
    found.lines += lines.sum();
    found.letters += letters.sum();
    found.characters += characters.sum();
    return 8 * eights;
}

// Where the ids of each piece go, and how much text there is.
struct Plan {
    std::vector<std::uint64_t> begins{0};
    Extent whole;
};

std::optional<Plan> plan(const PlainText& text, const Splitting& splitting, std::size_t threads) {
    std::vector<Extent> extents(text.pieces());
    std::vector<std::uint64_t> tokens(text.pieces());
    const auto measure = [&](std::size_t, std::size_t piece, std::string_view lines) {
        extents[piece] = extent_of(lines);
        std::string buffer;
        tokens[piece] =
            splitting.is_on ? extent_of(splitting.apply(lines, buffer)).tokens() : extents[piece].tokens();
    };
    if (!for_each_piece(text, threads, measure)) return {};
    Plan made;
    for (std::size_t i = 0; i < extents.size(); ++i) {
        made.whole.words += extents[i].words;
        made.whole.lines += extents[i].lines;
        made.whole.letters += extents[i].letters;
        made.whole.characters += extents[i].characters;
        made.begins.push_back(made.begins.back() + tokens[i]);
    }
    return made;
}

// What only the second reading tells of a piece.
struct Told {
    std::vector<std::uint32_t> unknown;  // numbers in the table of the thread that read it
    std::uint32_t thread = 0;
    std::uint64_t filled = 0;  // lines that have words
};

// Ids to `into`; false where there are more or fewer than it holds: the file is not what it was.
bool encode_piece(std::string_view lines, const Coding& coding, std::span<std::int32_t> into,
                  WordTable& spelled, Told& told) {
    std::size_t at = 0;
    bool is_empty = true;
    const auto push = [&](std::int32_t id) {
        if (at < into.size()) into[at] = id;
        ++at;
    };
    const auto on_word = [&](const Word& word) {
        const std::uint32_t number = coding.words.find(word);
        const std::int32_t id = number == WordTable::kNone ? coding.unknown : coding.ids[number];
        push(id);
        is_empty = false;
        if (id == coding.unknown) told.unknown.push_back(spelled.add(word));
    };
    scan_words(lines, on_word, [&] {
        push(coding.end);
        told.filled += !is_empty;
        is_empty = true;
    });
    return at == into.size();
}

// Words of a line stand one blank apart, and an LF ends it.
Measures measures_of(const Extent& whole, const std::vector<Told>& told) {
    std::uint64_t between = whole.words + whole.lines;
    for (const Told& piece : told) between -= piece.filled;
    return {whole.words, whole.lines, whole.characters + between, whole.letters + between};
}

}  // namespace

Extent extent_of(std::string_view lines) {
    Extent found;
    bool is_cut_before = true;
    std::size_t at = 0;
    if constexpr (std::endian::native == std::endian::little) {
        while (const std::size_t counted = count_eights(lines.substr(at), is_cut_before, found))
            at += counted;
    }
    for (; at < lines.size(); ++at) {
        const char c = lines[at];
        const bool is_letter = !is_cut(c);
        found.words += is_letter && is_cut_before;
        found.lines += c == '\n';
        found.letters += is_letter;
        found.characters += is_letter && (static_cast<unsigned char>(c) & 0xC0) != 0x80;
        is_cut_before = !is_letter;
    }
    return found;
}

std::optional<EncodedText> encode_words(const PlainText& text, const Coding& coding, const std::string& file,
                                        std::size_t threads) {
    const std::optional<Plan> planned = plan(text, coding.splitting, threads);
    if (!planned) return {};
    EncodedText made;
    made.spelled.resize(std::max<std::size_t>(threads, 1));
    std::optional<NumberOutput> output;
    if (file.empty()) {
        made.ids = Array<std::int32_t>(planned->begins.back());
    } else {
        output.emplace(file);
    }
    std::vector<Told> told(text.pieces());
    std::atomic<bool> is_same{true};
    const auto encode = [&](std::size_t thread, std::size_t piece, std::string_view lines) {
        const std::uint64_t begin = planned->begins[piece], size = planned->begins[piece + 1] - begin;
        std::vector<std::int32_t> own(output ? size : 0);
        const std::span<std::int32_t> into =
            output ? std::span(own) : std::span(made.ids.data() + begin, size);
        told[piece].thread = static_cast<std::uint32_t>(thread);
        std::string buffer;
        if (!encode_piece(coding.splitting.apply(lines, buffer), coding, into, made.spelled[thread],
                          told[piece]))
            is_same = false;
        if (output) output->write(begin, own);
    };
    if (!for_each_piece(text, threads, encode) || !is_same) return {};
    if (output) output->close();
    made.measures = measures_of(planned->whole, told);
    for (const Told& piece : told) {
        for (const std::uint32_t number : piece.unknown) made.spellings.emplace_back(piece.thread, number);
    }
    return made;
}

}  // namespace chainrule
