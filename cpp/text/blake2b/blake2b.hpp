// Unkeyed BLAKE2b with an 8-byte digest (RFC 7693) of many texts at once, one text per vector lane. A digest
// is a little-endian number, int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") in
// Python, and the same with every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chainrule {

// Writes the hash of each of `count` texts to `hashes`.
using Blake2b = void (*)(const std::string_view* texts, std::size_t count, std::uint64_t* hashes);

// "avx512", "avx2" or "none"; "auto" is the widest that this processor supports. Throws Error if the named
// one is not supported.
Blake2b choose_blake2b(const std::string& name);

std::uint64_t blake2b_64(std::string_view text);

Blake2b blake2b_avx2();  // null if the compiler does not support it
Blake2b blake2b_avx512();

}  // namespace chainrule
