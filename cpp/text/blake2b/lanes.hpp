// BLAKE2b on S::kLanes texts at once. Compiled once per instruction set, so everything has internal linkage.
//
// Each lane holds the state of one text; a lane whose text has ended continues with the next one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "text/blake2b/blake2b.hpp"

namespace chainrule {
namespace {

constexpr std::size_t kBlock = 128;

// The first 64 bits of the fractions of √2, √3, √5, √7, √11, √13, √17, √19 (RFC 7693, 2.6).
constexpr std::uint64_t kStart[8] = {0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B,
                                     0xA54FF53A5F1D36F1, 0x510E527FADE682D1, 0x9B05688C2B3E6C1F,
                                     0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179};

// Message schedule (RFC 7693, 2.7); rounds 10 and 11 repeat 0 and 1.
constexpr std::uint8_t kSchedule[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                            {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                            {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                            {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                            {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                            {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                            {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                            {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                            {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                            {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

template <class S>
struct Blocks {  // one block of each lane
    alignas(64) std::uint64_t h[8][S::kLanes];
    alignas(64) std::uint64_t m[16][S::kLanes];
    alignas(64) std::uint64_t read[S::kLanes];  // bytes of the text up to the end of the block
    alignas(64) std::uint64_t last[S::kLanes];  // all bits set in the last block of a text, none before
};

template <class S>
typename S::Words load(const std::uint64_t* lanes) {
    typename S::Words x;
    __builtin_memcpy(&x, lanes, sizeof x);
    return x;
}

template <class S, class Words = typename S::Words>
[[gnu::always_inline]] inline void mix(Words& a, Words& b, Words& c, Words& d, const Words& x,
                                       const Words& y) {
    a += b + x;
    d = S::template rotate<32>(d ^ a);
    c += d;
    b = S::template rotate<24>(b ^ c);
    a += b + y;
    d = S::template rotate<16>(d ^ a);
    c += d;
    b = S::template rotate<63>(b ^ c);
}

template <class S, std::size_t round, class Words = typename S::Words>
[[gnu::always_inline]] inline void apply_round(Words (&v)[16], const Blocks<S>& blocks) {
    constexpr const auto& s = kSchedule[round % 10];
    const auto m = [&](std::size_t i) { return load<S>(blocks.m[s[i]]); };
    mix<S>(v[0], v[4], v[8], v[12], m(0), m(1));
    mix<S>(v[1], v[5], v[9], v[13], m(2), m(3));
    mix<S>(v[2], v[6], v[10], v[14], m(4), m(5));
    mix<S>(v[3], v[7], v[11], v[15], m(6), m(7));
    mix<S>(v[0], v[5], v[10], v[15], m(8), m(9));
    mix<S>(v[1], v[6], v[11], v[12], m(10), m(11));
    mix<S>(v[2], v[7], v[8], v[13], m(12), m(13));
    mix<S>(v[3], v[4], v[9], v[14], m(14), m(15));
}

template <class S>
void compress(Blocks<S>& blocks) {
    typename S::Words v[16];
    for (std::size_t i = 0; i < 8; ++i) {
        v[i] = load<S>(blocks.h[i]);
        v[i + 8] = kStart[i] + typename S::Words{};
    }
    v[12] ^= load<S>(blocks.read);
    v[14] ^= load<S>(blocks.last);
    // Unrolled, so that the word permutation is known at compile time.
    [&]<std::size_t... round>(std::index_sequence<round...>) {
        (apply_round<S, round>(v, blocks), ...);
    }(std::make_index_sequence<12>());
    for (std::size_t i = 0; i < 8; ++i) {
        const typename S::Words h = load<S>(blocks.h[i]) ^ v[i] ^ v[i + 8];
        __builtin_memcpy(blocks.h[i], &h, sizeof h);
    }
}

inline std::uint64_t little_endian(const unsigned char* bytes) {
    std::uint64_t value;
    __builtin_memcpy(&value, bytes, sizeof value);
    return std::endian::native == std::endian::little ? value : __builtin_bswap64(value);
}

// `words`: size of a digest in 64-bit numbers.
template <class S, std::size_t words>
void hash_texts(const std::string_view* texts, std::size_t count, std::uint64_t* hashes) {
    struct Lane {
        const unsigned char* at;
        std::size_t left, text;
    } lanes[S::kLanes];
    Blocks<S> blocks = {};
    std::size_t next = 0;
    const auto start = [&](std::size_t i) {
        const std::string_view text = texts[next];
        lanes[i] = {reinterpret_cast<const unsigned char*>(text.data()), text.size(), next++};
        for (std::size_t j = 0; j < 8; ++j) blocks.h[j][i] = kStart[j];
        blocks.h[0][i] ^= 0x01010000 ^ (8 * words);  // parameters: one leaf, depth one, no key
        blocks.read[i] = 0;
    };
    const std::size_t width = count < S::kLanes ? count : S::kLanes;
    for (std::size_t i = 0; i < width; ++i) start(i);
    for (std::size_t done = 0; done < count;) {
        for (std::size_t i = 0; i < width; ++i) {
            Lane& lane = lanes[i];
            const unsigned char* block = lane.at;
            unsigned char padded[kBlock];
            const std::size_t size = lane.left < kBlock ? lane.left : kBlock;
            if (size < kBlock) {
                __builtin_memset(padded, 0, kBlock);
                if (size) __builtin_memcpy(padded, block, size);
                block = padded;
            }
            for (std::size_t j = 0; j < 16; ++j) blocks.m[j][i] = little_endian(block + 8 * j);
            lane.at += size;
            lane.left -= size;
            blocks.read[i] += size;
            blocks.last[i] = lane.left ? 0 : ~std::uint64_t{0};
        }
        compress(blocks);
        for (std::size_t i = 0; i < width; ++i) {
            if (!blocks.last[i] || lanes[i].text == count) continue;
            for (std::size_t j = 0; j < words; ++j) hashes[words * lanes[i].text + j] = blocks.h[j][i];
            ++done;
            if (next < count) {
                start(i);
            } else {
                lanes[i].text = count;  // idle: its blocks are empty
            }
        }
    }
}

}  // namespace
}  // namespace chainrule
