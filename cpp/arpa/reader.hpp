// ARPA files of any maker (KenLM, SRILM, MITLM, chainrule) -> tables.
//
// A header \data\ counts the n-grams of each order; a section \n-grams: lists them, log10 p(w | h), the words
// h w, and log10 of the weight of h w as a context where it has one; \end\ ends it. What is read follows what
// the file lists, never what its header claims, and so does the memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "arpa/builder.hpp"

namespace chainrule {

// The next bytes of a file, good until it is called again; none at the end.
using NextBlock = std::function<std::string_view()>;

inline constexpr std::size_t kHighestOrder = 32;

// Told now and then: how many n-grams of an order were read, of how many; order 0: tables are being built.
using ArpaProgress = std::function<void(std::size_t order, std::uint64_t done, std::uint64_t of)>;

// Natural logarithms from here on. A log10 of −99 or less is that of 0, and <s> is never predicted, whatever
// the file says. A context that is not listed itself gets the probability that backing off gives and the
// weight 1. Throws ArpaFault where the file is no ARPA file.
ArpaModel read_arpa(NextBlock next, std::size_t threads, const ArpaProgress& progress);

}  // namespace chainrule
