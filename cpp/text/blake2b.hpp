// BLAKE2b with a digest of eight bytes and no key (RFC 7693), as a number: little-endian, as
// int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") of Python gives it.
#pragma once

#include <cstdint>
#include <string_view>

namespace chainrule {

std::uint64_t blake2b_64(std::string_view data);

}  // namespace chainrule
