#include "text/scan.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/parallel.hpp"

namespace chainrule {

namespace {

// Passes pieces on in order; those that arrive early are copied and wait.
class InOrder {
  public:
    explicit InOrder(const std::function<void(std::string_view)>& receive) : receive_(receive) {}

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
    const std::function<void(std::string_view)>& receive_;
    std::mutex mutex_;
    std::size_t next_ = 0;
    std::map<std::size_t, std::string> waiting_;
};

}  // namespace

std::optional<TextScan> scan_text(const PlainText& text, const Splitting& splitting, const SketchSize& sketch,
                                  std::size_t threads,
                                  const std::function<void(std::string_view)>& on_lines) {
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
