// Sketch of a plain text: the smallest hashes of its longer lines (text/fingerprint.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/lines.hpp"

namespace chainrule {

struct Sketch {
    std::vector<std::uint64_t> hashes;  // ascending, without duplicates
    std::uint64_t lines = 0;
};

// At most `size` hashes of lines with `shortest` characters or more; nothing if the text is not plain.
std::optional<Sketch> sketch_lines(const PlainText& text, std::size_t shortest, std::size_t size,
                                   std::size_t threads);

// Unkeyed BLAKE2b with an 8-byte digest (RFC 7693) as a little-endian number, i.e.
// int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") in Python.

std::uint64_t blake2b_64(std::string_view data);

}  // namespace chainrule
