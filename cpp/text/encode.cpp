#include "text/encode.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "text/input/in_order.hpp"
#include "text/words.hpp"

namespace chainrule {

namespace {

// A file of ids.
class WordIdOutput {
  public:
    explicit WordIdOutput(const std::string& file) : file_(file), out_(file, std::ios::binary) { check(); }

    void write(std::span<const std::int32_t> numbers) {
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

// The results of the pieces of a text, added by several threads.
template <class Result>
class PieceResults {
  public:
    explicit PieceResults(std::size_t threads) : parts_(threads) {}

    // Adds the result of a piece; valid until the thread adds the next one.
    Result& add(std::size_t thread, std::size_t piece) {
        return parts_[thread].emplace_back(piece, Result()).second;
    }

    // Moves out all results in text order.
    std::vector<Result> in_order() {
        std::vector<Result> results;
        for (auto& part : parts_) results.resize(results.size() + part.size());
        for (auto& part : parts_) {
            for (auto& [piece, result] : part) results[piece] = std::move(result);
            part.clear();
        }
        return results;
    }

  private:
    std::vector<std::vector<std::pair<std::size_t, Result>>> parts_;  // by thread
};

// Passes the ids of consecutive parts of a text to push(id) and its unknown words to on_unknown(word);
// returns the number of non-empty lines.
template <class Push, class OnUnknown>
std::uint64_t push_ids(const std::vector<std::string_view>& segments, const WordEncoding& encoding,
                       const Push& push, const OnUnknown& on_unknown) {
    std::uint64_t filled = 0;
    bool is_empty = true;
    const auto on_word = [&](const Word& word) {
        const std::int32_t id = encoding.find(word);
        push(id);
        is_empty = false;
        if (id == encoding.unknown) on_unknown(word);
    };
    const auto on_end = [&] {
        push(encoding.end);
        filled += !is_empty;
        is_empty = true;
    };
    for (const std::string_view lines : segments) scan_words(lines, on_word, on_end);
    return filled;
}

// Results of encoding a piece, besides its ids.
struct PieceResult {
    std::vector<std::uint32_t> unknown;  // numbers in the table of the reading thread
    std::uint32_t thread = 0;
    std::uint64_t filled = 0;  // non-empty lines
};

// Measures a piece; `tokens` receives the number of its ids.
TextSize measure_piece(const TextPiece& piece, const Splitting& splitting, std::vector<std::string>& buffers,
                       std::vector<std::string_view>& words, std::uint64_t& tokens) {
    TextSize size;
    tokens = 0;
    words.clear();
    buffers.resize(piece.segments.size());
    for (std::size_t i = 0; i < piece.segments.size(); ++i) {
        const TextSize segment = measure_text(piece.segments[i]);
        size.add(segment);
        words.push_back(splitting.apply(piece.segments[i], buffers[i]));
        tokens += splitting.is_on ? measure_text(words.back()).tokens() : segment.tokens();
    }
    return size;
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

// What both kinds of encoding do with each piece of a text. Unknown words are listed, or counted in `counts`.
class Encoder {
  public:
    Encoder(const WordEncoding& encoding, const SketchSize& sketch, std::size_t threads,
            const OnLines& on_lines, WordCounting* counts = nullptr)
        : encoding_(encoding),
          counts_(counts),
          has_sketch_(sketch.size),
          texts_(on_lines, pieces_ahead(threads)),
          has_texts_(static_cast<bool>(on_lines)),
          results_(threads),
          sizes_(threads),
          sketchers_(threads, LineSketcher(sketch)),
          spelled_(threads) {}

    // The ids of a piece.
    UninitializedBuffer<std::int32_t> encode(std::size_t thread, const TextPiece& piece) {
        if (has_texts_) texts_.add(piece.number, piece.text);
        if (has_sketch_) sketchers_[thread].add(piece);
        std::vector<std::string> buffers;
        std::vector<std::string_view> words;
        std::uint64_t tokens = 0;
        sizes_[thread].add(measure_piece(piece, encoding_.splitting, buffers, words, tokens));
        UninitializedBuffer<std::int32_t> ids;
        if (tokens) ids = UninitializedBuffer<std::int32_t>(tokens);
        std::int32_t* at = ids.data();
        PieceResult& result = results_.add(thread, piece.number);
        result.thread = static_cast<std::uint32_t>(thread);
        result.filled = push_ids(
            words, encoding_, [&](std::int32_t id) { *at++ = id; },
            [&](const Word& word) {
                if (counts_)
                    counts_->add(thread, word);
                else
                    result.unknown.push_back(spelled_[thread].add(word));
            });
        return ids;
    }

    void stop() { texts_.stop(); }

    // Collects the results of all pieces.
    void finish(EncodedWords& words) {
        TextSize whole;
        for (const TextSize& part : sizes_) whole.add(part);
        words.spelled = std::move(spelled_);
        words.sizes.add(whole, merge_pieces(results_.in_order(), words));
        words.sketch = merge_sketches(sketchers_);
        words.sketch.lines = whole.lines;
    }

  private:
    const WordEncoding& encoding_;
    WordCounting* const counts_;
    const bool has_sketch_;
    InOrder<std::string> texts_;
    const bool has_texts_;
    PieceResults<PieceResult> results_;
    std::vector<TextSize> sizes_;
    std::vector<LineSketcher> sketchers_;
    std::vector<WordTable> spelled_;
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

bool count_words(TextReader& text, const Splitting& splitting, std::size_t threads, WordCounting& counts) {
    return text.for_each_piece(threads, [&](std::size_t thread, const TextPiece& piece) {
        check_word_lengths(piece);
        std::string buffer;
        for (const std::string_view lines : piece.segments)
            scan_words(
                splitting.apply(lines, buffer), [&](const Word& word) { counts.add(thread, word); }, [] {});
    });
}

void TextSample::add(std::string_view lines) {
    bytes_ += lines.size();
    scan_words(
        splitting_.apply(lines, buffer_),
        [&](const Word& word) {
            counter_.add(word, 1);
            ++tokens_;
        },
        [&] { ++tokens_; });
}

std::uint64_t TextSample::types_with(std::uint64_t min_count) const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(counter_.counts, [&](std::uint64_t count) { return count >= min_count; }));
}

std::optional<EncodedWords> encode_words(TextReader& text, const WordEncoding& encoding,
                                         const std::string& file, const SketchSize& sketch,
                                         std::size_t threads, WordCounting& spelled,
                                         const OnLines& on_lines) {
    using Ids = UninitializedBuffer<std::int32_t>;
    threads = std::max<std::size_t>(threads, 1);
    WordIdOutput output(file);
    Encoder encoder(encoding, sketch, threads, on_lines, &spelled);
    InOrder<Ids> ids([&](const Ids& part) { output.write({part.begin(), part.end()}); },
                     pieces_ahead(threads));
    const auto encode = [&](std::size_t thread, const TextPiece& piece) {
        ids.add(piece.number, encoder.encode(thread, piece));
    };
    const auto stop = [&] {
        encoder.stop();
        ids.stop();
    };
    if (!text.for_each_piece(threads, encode, stop)) return {};
    output.close();
    EncodedWords result;
    encoder.finish(result);
    return result;
}

std::optional<EncodedText> encode_text(TextReader& text, const WordEncoding& encoding,
                                       const SketchSize& sketch, std::size_t threads,
                                       const OnLines& on_lines) {
    threads = std::max<std::size_t>(threads, 1);
    Encoder encoder(encoding, sketch, threads, on_lines);
    PieceResults<UninitializedBuffer<std::int32_t>> ids(threads);
    const auto encode = [&](std::size_t thread, const TextPiece& piece) {
        ids.add(thread, piece.number) = encoder.encode(thread, piece);
    };
    if (!text.for_each_piece(threads, encode, [&] { encoder.stop(); })) return {};
    EncodedText result;
    encoder.finish(result);
    std::vector<UninitializedBuffer<std::int32_t>> parts = ids.in_order();
    result.ids = concatenate(parts);
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
    results[0].filled = push_ids(
        {words}, encoding, [&](std::int32_t id) { *at++ = id; },
        [&](const Word& word) { results[0].unknown.push_back(result.spelled[0].add(word)); });
    result.sizes.add(size, merge_pieces(results, result));
    return result;
}

std::optional<TextScan> scan_text(TextReader& text, const Splitting& splitting, const SketchSize& sketch,
                                  std::size_t threads, const OnLines& on_lines) {
    threads = std::max<std::size_t>(threads, 1);
    std::vector<WordCounter> counters(threads);
    std::vector<LineSketcher> sketchers(threads, LineSketcher(sketch));
    std::vector<TextCounts> sizes(threads);
    InOrder<std::string> in_order(on_lines, pieces_ahead(threads));
    PieceResults<TextScan::Piece> pieces(threads);
    const auto scan_piece = [&](std::size_t thread, const TextPiece& piece) {
        check_word_lengths(piece);
        if (on_lines) in_order.add(piece.number, piece.text);
        sketchers[thread].add(piece);
        std::vector<std::string> buffers;
        std::vector<std::string_view> words;
        std::uint64_t tokens = 0;
        const TextSize size = measure_piece(piece, splitting, buffers, words, tokens);
        TextScan::Piece& result = pieces.add(thread, piece.number);
        result.thread = thread;
        if (tokens) result.numbers = UninitializedBuffer<std::uint32_t>(tokens);
        std::uint32_t* at = result.numbers.data();
        std::uint64_t filled = 0;  // non-empty lines
        bool is_empty = true;
        const auto on_word = [&](const Word& word) {
            *at++ = counters[thread].add(word, 1);
            is_empty = false;
        };
        for (const std::string_view lines : words) {
            scan_words(lines, on_word, [&] {
                *at++ = TextScan::kLineEnd;
                filled += !is_empty;
                is_empty = true;
            });
        }
        sizes[thread].add(size, filled);
    };
    if (!text.for_each_piece(threads, scan_piece, [&] { in_order.stop(); })) return {};
    TextScan scan;
    scan.pieces_ = pieces.in_order();
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
