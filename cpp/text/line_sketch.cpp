#include "text/line_sketch.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "text/blake2b/blake2b.hpp"
#include "text/input/in_order.hpp"
#include "text/utf8.hpp"

namespace chainrule {

namespace {

// Sorts evenly distributed numbers: a bucket for each number, and within the buckets by comparison.
void sort_hashes(std::vector<std::uint64_t>& hashes) {
    if (hashes.empty()) return;
    const std::size_t buckets = hashes.size() + 1;
    const std::uint64_t width = *std::max_element(hashes.begin(), hashes.end()) / buckets + 1;
    std::vector<std::uint32_t> begins(buckets + 2);  // of bucket i at i + 1, its end once it is filled
    for (const std::uint64_t hash : hashes) ++begins[hash / width + 2];
    for (std::size_t i = 2; i < begins.size(); ++i) begins[i] += begins[i - 1];
    std::vector<std::uint64_t> sorted(hashes.size());
    for (const std::uint64_t hash : hashes) sorted[begins[hash / width + 1]++] = hash;
    for (std::size_t i = 0; i < buckets; ++i)
        std::sort(sorted.begin() + begins[i], sorted.begin() + begins[i + 1]);
    hashes = std::move(sorted);
}

}  // namespace

void LineSketcher::add_hash(std::uint64_t value) {
    if (value > bound_) return;
    hashes_.push_back(value);
    if (hashes_.size() >= 4 * size_.size + 16) shrink();
}

void LineSketcher::add(const TextPiece& piece) {
    lines_ += static_cast<std::uint64_t>(std::count(piece.text.begin(), piece.text.end(), '\n'));
    if (!size_.size) return;
    for (const std::string_view segment : piece.segments) add_lines(segment);
}

void LineSketcher::add_lines(std::string_view lines) {
    std::vector<std::string_view> hashed;
    for_each_line(lines, [&](std::string_view line) {
        // A character has at most four bytes.
        const bool is_long = line.size() >= 4 * size_.shortest ||
                             (line.size() >= size_.shortest && count_characters(line) >= size_.shortest);
        if (is_long) hashed.push_back(line);
    });
    std::vector<std::uint64_t> hashes(hashed.size());
    choose_blake2b("auto")(hashed.data(), hashed.size(), hashes.data());
    for (const std::uint64_t value : hashes) add_hash(value);
}

void LineSketcher::shrink() {
    sort_hashes(hashes_);
    hashes_.erase(std::unique(hashes_.begin(), hashes_.end()), hashes_.end());
    if (hashes_.size() < size_.size || hashes_.empty()) return;
    hashes_.resize(size_.size);
    bound_ = hashes_.back();
}

Sketch merge_sketches(const std::vector<LineSketcher>& parts) {
    LineSketcher all(parts.front().size_);
    std::uint64_t lines = 0;
    for (const LineSketcher& part : parts) {
        for (const std::uint64_t value : part.hashes_) all.add_hash(value);
        lines += part.lines_;
    }
    all.shrink();
    return {std::move(all.hashes_), lines};
}

std::optional<Sketch> sketch_lines(TextReader& text, const SketchSize& size, std::size_t threads,
                                   const OnLines& on_lines) {
    std::vector<LineSketcher> parts(std::max<std::size_t>(threads, 1), LineSketcher(size));
    InOrder<std::string> in_order(on_lines, pieces_ahead(parts.size()));
    const auto add = [&](std::size_t thread, const TextPiece& piece) {
        if (on_lines) in_order.add(piece.number, piece.text);
        parts[thread].add(piece);
    };
    if (!text.for_each_piece(threads, add, [&] { in_order.stop(); })) return {};
    return merge_sketches(parts);
}

}  // namespace chainrule
