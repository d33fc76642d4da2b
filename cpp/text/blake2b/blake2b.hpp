// Unkeyed BLAKE2b with a digest of 8 or 16 bytes (RFC 7693) of many texts at once, one text per vector lane.
// A digest is one or two little-endian numbers, int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(),
// "little") in Python, and the same with every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chainrule {

// Writes the hash of each of `count` texts to `hashes`: one number each, or two with 16 bytes.
using Blake2b = void (*)(const std::string_view* texts, std::size_t count, std::uint64_t* hashes);

// "avx512", "avx2" or "none"; "auto" is the widest that this processor supports. Throws Error if the named
// one is not supported.
Blake2b choose_blake2b(const std::string& name);
Blake2b choose_blake2b_128(const std::string& name);

std::uint64_t blake2b_64(std::string_view text);

// Null if the compiler does not support the instruction set.
Blake2b blake2b_avx2();
Blake2b blake2b_avx512();
Blake2b blake2b_128_avx2();
Blake2b blake2b_128_avx512();

}  // namespace chainrule
