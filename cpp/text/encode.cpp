#include "text/encode.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "text/words.hpp"

namespace chainrule {

namespace {

// A file of ids written by several threads at given positions.
class WordIdOutput {
  public:
    explicit WordIdOutput(const std::string& file) : file_(file), out_(file, std::ios::binary) { check(); }

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
        if (!out_) throw IoError(file_ + " cannot be written; check that the disk has room for it");
    }

    std::string file_;
    std::ofstream out_;
    std::mutex mutex_;
};

// Counts in at most 255 bytes, so that byte-wide counters hold them and the compiler vectorizes the loop; one
// byte before them can be read.
TextSize measure_bytes(const char* text, std::size_t size) {
    std::uint8_t words = 0, lines = 0, letters = 0, characters = 0;
    for (std::size_t i = 0; i < size; ++i) {
        const char before = text[static_cast<std::ptrdiff_t>(i) - 1], c = text[i];
        const bool is_letter = (c != ' ') & (c != '\t') & (c != '\n');
        const bool is_first = (before == ' ') | (before == '\t') | (before == '\n');
        const bool is_continued = static_cast<signed char>(c) < static_cast<signed char>(0xC0);  // 10…
        words = static_cast<std::uint8_t>(words + (is_letter & is_first));
        lines = static_cast<std::uint8_t>(lines + (c == '\n'));
        letters = static_cast<std::uint8_t>(letters + is_letter);
        characters = static_cast<std::uint8_t>(characters + (is_letter & !is_continued));
    }
    return {words, lines, letters, characters};
}

// Offsets of the ids of each piece, and the size of the whole text.
struct Plan {
    std::vector<std::uint64_t> begins{0};
    TextSize whole;
};

std::optional<Plan> plan(const PlainText& text, const Splitting& splitting, std::size_t threads) {
    std::vector<TextSize> extents(text.pieces());
    std::vector<std::uint64_t> tokens(text.pieces());
    const auto measure = [&](std::size_t, std::size_t piece, std::string_view lines) {
        extents[piece] = measure_text(lines);
        std::string buffer;
        tokens[piece] =
            splitting.is_on ? measure_text(splitting.apply(lines, buffer)).tokens() : extents[piece].tokens();
    };
    if (!for_each_piece(text, threads, measure)) return {};
    Plan result;
    for (std::size_t i = 0; i < extents.size(); ++i) {
        result.whole.add(extents[i]);
        result.begins.push_back(result.begins.back() + tokens[i]);
    }
    return result;
}

// Results of encoding a piece, besides its ids.
struct PieceResult {
    std::vector<std::uint32_t> unknown;  // numbers in the table of the reading thread
    std::uint32_t thread = 0;
    std::uint64_t filled = 0;  // non-empty lines
};

// Encodes a piece and passes its ids to push(id).
template <class Push>
void encode_piece(std::string_view lines, const WordEncoding& encoding, WordTable& spelled,
                  PieceResult& result, const Push& push) {
    bool is_empty = true;
    const auto on_word = [&](const Word& word) {
        const std::uint32_t number = encoding.words.find(word);
        const std::int32_t id = number == WordTable::kNone ? encoding.unknown : encoding.ids[number];
        push(id);
        is_empty = false;
        if (id == encoding.unknown) result.unknown.push_back(spelled.add(word));
    };
    scan_words(lines, on_word, [&] {
        push(encoding.end);
        result.filled += !is_empty;
        is_empty = true;
    });
}

// Collects the spellings of all pieces in text order; returns the number of non-empty lines.
std::uint64_t merge_pieces(const std::vector<PieceResult>& results, EncodedWords& words) {
    std::uint64_t filled = 0;
    for (const PieceResult& piece : results) {
        filled += piece.filled;
        for (const std::uint32_t number : piece.unknown) words.spellings.emplace_back(piece.thread, number);
    }
    return filled;
}

// Concatenates buffers and releases them one by one; a single buffer is moved.
UninitializedBuffer<std::int32_t> concatenate(std::vector<UninitializedBuffer<std::int32_t>>& parts) {
    if (parts.size() == 1) return std::move(parts.front());
    std::size_t size = 0;
    for (const auto& part : parts) size += part.size();
    UninitializedBuffer<std::int32_t> all;
    if (size) all = UninitializedBuffer<std::int32_t>(size);
    std::int32_t* at = all.data();
    for (auto& part : parts) {
        at = std::copy(part.begin(), part.end(), at);
        part = {};
    }
    return all;
}

// Passes pieces on in order; those that arrive early are copied and wait.
class InOrder {
  public:
    explicit InOrder(const OnLines& receive) : receive_(receive) {}

    void add(std::size_t piece, std::string_view lines) {
        if (!receive_) return;
        const std::lock_guard lock(mutex_);
        if (piece != next_) {
            waiting_.emplace(piece, lines);
            return;
        }
        receive_(lines);
        ++next_;
        for (auto first = waiting_.begin(); first != waiting_.end() && first->first == next_; ++next_) {
            receive_(first->second);
            first = waiting_.erase(first);
        }
    }

  private:
    const OnLines& receive_;
    std::mutex mutex_;
    std::size_t next_ = 0;
    std::map<std::size_t, std::string> waiting_;
};

}  // namespace

TextSize measure_text(std::string_view lines) {
    constexpr std::size_t kBytes = 240;  // a multiple of the vector size
    TextSize size;
    if (lines.empty()) return size;
    const char first[] = {'\n', lines.front()};
    size.add(measure_bytes(first + 1, 1));
    std::size_t at = 1;
    for (; at + kBytes <= lines.size(); at += kBytes) size.add(measure_bytes(lines.data() + at, kBytes));
    size.add(measure_bytes(lines.data() + at, lines.size() - at));
    return size;
}

std::optional<EncodedWords> encode_words(const PlainText& text, const WordEncoding& encoding,
                                         const std::string& file, std::size_t threads) {
    const std::optional<Plan> planned = plan(text, encoding.splitting, threads);
    if (!planned) return {};
    EncodedWords result;
    result.spelled.resize(std::max<std::size_t>(threads, 1));
    WordIdOutput output(file);
    std::vector<PieceResult> results(text.pieces());
    std::atomic<bool> is_same{true};
    const auto encode = [&](std::size_t thread, std::size_t piece, std::string_view lines) {
        const std::uint64_t begin = planned->begins[piece], size = planned->begins[piece + 1] - begin;
        std::vector<std::int32_t> ids(size);
        std::size_t at = 0;
        results[piece].thread = static_cast<std::uint32_t>(thread);
        std::string buffer;
        encode_piece(encoding.splitting.apply(lines, buffer), encoding, result.spelled[thread],
                     results[piece], [&](std::int32_t id) {
                         if (at < ids.size()) ids[at] = id;
                         ++at;
                     });
        if (at != ids.size()) is_same = false;  // the file changed after it was measured
        output.write(begin, ids);
    };
    if (!for_each_piece(text, threads, encode) || !is_same) return {};
    output.close();
    result.sizes.add(planned->whole, merge_pieces(results, result));
    return result;
}

std::optional<EncodedText> encode_text(const PlainText& text, const WordEncoding& encoding,
                                       const SketchSize& sketch, std::size_t threads,
                                       const OnLines& on_lines) {
    threads = std::max<std::size_t>(threads, 1);
    EncodedText result;
    result.spelled.resize(threads);
    std::vector<PieceResult> results(text.pieces());
    std::vector<UninitializedBuffer<std::int32_t>> ids(text.pieces());
    std::vector<TextSize> sizes(threads);
    std::vector<LineSketcher> sketchers(threads, LineSketcher(sketch));
    InOrder in_order(on_lines);
    const auto encode = [&](std::size_t thread, std::size_t piece, std::string_view lines) {
        in_order.add(piece, lines);
        if (sketch.size) sketchers[thread].add(lines);
        const TextSize size = measure_text(lines);
        sizes[thread].add(size);
        std::string buffer;
        const std::string_view words = encoding.splitting.apply(lines, buffer);
        const std::uint64_t tokens = encoding.splitting.is_on ? measure_text(words).tokens() : size.tokens();
        if (tokens) ids[piece] = UninitializedBuffer<std::int32_t>(tokens);
        std::int32_t* at = ids[piece].data();
        results[piece].thread = static_cast<std::uint32_t>(thread);
        encode_piece(words, encoding, result.spelled[thread], results[piece],
                     [&](std::int32_t id) { *at++ = id; });
    };
    if (!for_each_piece(text, threads, encode)) return {};
    TextSize whole;
    for (const TextSize& part : sizes) whole.add(part);
    result.sizes.add(whole, merge_pieces(results, result));
    result.sketch = merge_sketches(sketchers);
    result.sketch.lines = whole.lines;
    result.ids = concatenate(ids);
    return result;
}

EncodedText encode_lines(std::string_view lines, const WordEncoding& encoding) {
    EncodedText result;
    result.spelled.resize(1);
    const TextSize size = measure_text(lines);
    std::string buffer;
    const std::string_view words = encoding.splitting.apply(lines, buffer);
    const std::uint64_t tokens = encoding.splitting.is_on ? measure_text(words).tokens() : size.tokens();
    if (tokens) result.ids = UninitializedBuffer<std::int32_t>(tokens);
    std::int32_t* at = result.ids.data();
    std::vector<PieceResult> results(1);
    encode_piece(words, encoding, result.spelled[0], results[0], [&](std::int32_t id) { *at++ = id; });
    result.sizes.add(size, merge_pieces(results, result));
    return result;
}

std::optional<TextScan> scan_text(const PlainText& text, const Splitting& splitting, const SketchSize& sketch,
                                  std::size_t threads, const OnLines& on_lines) {
    threads = std::max<std::size_t>(threads, 1);
    TextScan scan;
    scan.pieces_.resize(text.pieces());
    std::vector<WordCounter> counters(threads);
    std::vector<LineSketcher> sketchers(threads, LineSketcher(sketch));
    std::vector<TextCounts> sizes(threads);
    InOrder in_order(on_lines);
    const auto scan_piece = [&](std::size_t thread, std::size_t index, std::string_view lines) {
        in_order.add(index, lines);
        sketchers[thread].add(lines);
        const TextSize size = measure_text(lines);
        std::string buffer;
        const std::string_view words = splitting.apply(lines, buffer);
        TextScan::Piece& piece = scan.pieces_[index];
        piece.thread = thread;
        const std::uint64_t tokens = splitting.is_on ? measure_text(words).tokens() : size.tokens();
        if (tokens) piece.numbers = UninitializedBuffer<std::uint32_t>(tokens);
        std::uint32_t* at = piece.numbers.data();
        std::uint64_t filled = 0;  // non-empty lines
        bool is_empty = true;
        scan_words(
            words,
            [&](const Word& word) {
                *at++ = counters[thread].add(word, 1);
                is_empty = false;
            },
            [&] {
                *at++ = TextScan::kLineEnd;
                filled += !is_empty;
                is_empty = true;
            });
        sizes[thread].add(size, filled);
    };
    if (!for_each_piece(text, threads, scan_piece)) return {};
    scan.words_ = merge_counters(counters, &scan.numbers_of_thread_);
    scan.sketch_ = merge_sketches(sketchers);
    for (const TextCounts& part : sizes) scan.sizes_.add(part);
    return scan;
}

ScannedIds TextScan::encode(std::span<const std::int32_t> ids, std::int32_t unknown, std::int32_t end,
                            std::size_t threads) {
    if (is_encoded_) throw ArgumentError("the text is already encoded; scan it again");
    if (ids.size() != words_.counts.size()) throw ArgumentError("the ids are not those of the words");
    is_encoded_ = true;
    std::vector<std::uint64_t> begins{0};
    for (const Piece& piece : pieces_) begins.push_back(begins.back() + piece.numbers.size());
    ScannedIds result;
    if (begins.back()) result.ids = UninitializedBuffer<std::int32_t>(begins.back());
    std::vector<std::vector<std::uint32_t>> unknown_of(pieces_.size());
    std::atomic<std::size_t> next{0};
    threads = std::max<std::size_t>(1, std::min(threads, pieces_.size()));
    parallel_for(threads, [&](std::size_t) {
        for (std::size_t i; (i = next++) < pieces_.size();) {
            const std::vector<std::uint32_t>& numbers = numbers_of_thread_[pieces_[i].thread];
            std::int32_t* into = result.ids.data() + begins[i];
            for (const std::uint32_t local : pieces_[i].numbers) {
                if (local == kLineEnd) {
                    *into++ = end;
                    continue;
                }
                const std::uint32_t number = numbers[local];
                if (ids[number] == unknown) unknown_of[i].push_back(number);
                *into++ = ids[number];
            }
            pieces_[i].numbers = {};
        }
    });
    for (const std::vector<std::uint32_t>& part : unknown_of)
        result.unknown.insert(result.unknown.end(), part.begin(), part.end());
    return result;
}

}  // namespace chainrule
