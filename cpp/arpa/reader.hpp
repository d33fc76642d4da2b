// Reads ARPA files (KenLM, SRILM, MITLM, chainrule) into tables.
//
// The header \data\ counts the n-grams of each order; each section \n-grams: lists log10 p(w | h), the words
// h w and, for contexts, the log10 back-off weight; \end\ ends the file. Memory is allocated for what the
// file lists, never for what its header claims.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "arpa/builder.hpp"

namespace chainrule {

// Returns the next bytes of a file, valid until the next call; empty at the end.
using NextBlock = std::function<std::string_view()>;

inline constexpr std::size_t kMaxArpaOrder = 32;

// Progress callback: n-grams of an order read so far and in total; order 0: tables are being built.
using ArpaProgress = std::function<void(std::size_t order, std::uint64_t done, std::uint64_t of)>;

// Returns natural logarithms. log10 values of −99 or less are taken as log 0, and <s> is never predicted. A
// context that is not listed receives the backed-off probability and the weight 1. Throws ArpaParseError if
// the file is not valid ARPA.
ArpaModel read_arpa(NextBlock next, std::size_t threads, const ArpaProgress& progress);

}  // namespace chainrule
