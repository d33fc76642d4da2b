#include "text/line_sketch.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <utility>

#include "text/utf8.hpp"

namespace chainrule {

namespace {

using State = std::array<std::uint64_t, 8>;

constexpr std::size_t kBlock = 128, kDigest = 8;

// The first 64 bits of the fractions of √2, √3, √5, √7, √11, √13, √17, √19 (RFC 7693, 2.6).
constexpr State kStart = {0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
                          0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179};

// Message schedule (RFC 7693, 2.7); rounds 10 and 11 repeat 0 and 1.
constexpr std::uint8_t kTurns[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                         {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                         {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                         {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                         {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                         {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                         {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                         {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                         {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                         {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

std::uint64_t little_endian(const unsigned char* bytes) {
    std::uint64_t value = 0;
    for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
    return value;
}

void mix(std::uint64_t& a, std::uint64_t& b, std::uint64_t& c, std::uint64_t& d, std::uint64_t x,
         std::uint64_t y) {
    a += b + x;
    d = std::rotr(d ^ a, 32);
    c += d;
    b = std::rotr(b ^ c, 24);
    a += b + y;
    d = std::rotr(d ^ a, 16);
    c += d;
    b = std::rotr(b ^ c, 63);
}

template <std::size_t round>
void apply_round(std::uint64_t (&v)[16], const std::uint64_t (&m)[16]) {
    constexpr const auto& s = kTurns[round % 10];
    mix(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
    mix(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
    mix(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
    mix(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
    mix(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
    mix(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
    mix(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
    mix(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
}

// `read`: bytes of data up to the end of this block, below 2^64.
void compress(State& h, const unsigned char* block, std::uint64_t read, bool is_last) {
    std::uint64_t m[16], v[16];
    for (std::size_t i = 0; i < 16; ++i) m[i] = little_endian(block + 8 * i);
    for (std::size_t i = 0; i < 8; ++i) {
        v[i] = h[i];
        v[i + 8] = kStart[i];
    }
    v[12] ^= read;
    if (is_last) v[14] = ~v[14];
    // Unrolled, so that the word permutation is known at compile time.
    [&]<std::size_t... round>(std::index_sequence<round...>) {
        (apply_round<round>(v, m), ...);
    }(std::make_index_sequence<12>());
    for (std::size_t i = 0; i < 8; ++i) h[i] ^= v[i] ^ v[i + 8];
}

}  // namespace

std::uint64_t blake2b_64(std::string_view data) {
    State h = kStart;
    h[0] ^= 0x01010000 ^ kDigest;  // parameters: one leaf, depth one, no key
    const auto* at = reinterpret_cast<const unsigned char*>(data.data());
    std::size_t done = 0;
    for (; data.size() - done > kBlock; done += kBlock) compress(h, at + done, done + kBlock, false);
    unsigned char last[kBlock] = {};
    std::copy(at + done, at + data.size(), last);
    compress(h, last, data.size(), true);
    return h[0];
}

void LineSketcher::add_hash(std::uint64_t value) {
    if (value > bound_) return;
    hashes_.push_back(value);
    if (hashes_.size() >= 4 * size_.size + 16) shrink();
}

void LineSketcher::add(std::string_view lines) {
    for_each_line(lines, [&](std::string_view line) {
        ++lines_;
        if (size_.size && line.size() >= size_.shortest && count_characters(line) >= size_.shortest)
            add_hash(blake2b_64(line));
    });
}

void LineSketcher::shrink() {
    std::sort(hashes_.begin(), hashes_.end());
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

std::optional<Sketch> sketch_lines(const PlainText& text, const SketchSize& size, std::size_t threads) {
    std::vector<LineSketcher> parts(std::max<std::size_t>(threads, 1), LineSketcher(size));
    const bool is_plain = for_each_piece(
        text, threads,
        [&](std::size_t thread, std::size_t, std::string_view lines) { parts[thread].add(lines); });
    if (!is_plain) return {};
    return merge_sketches(parts);
}

}  // namespace chainrule
