// Lookup of all prefixes of word sequences, and of the extensions of a context: what a shard answers. The
// n-grams that end in a word begin with different words, so a client looks up the sequence that starts at
// each position of a text in the shard of its first word and combines the results.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ngram/query/state.hpp"

namespace chainrule {

// Stored prefixes of sequences of up to n words, n being the order: rows of a batch.
struct PrefixBatch {
    std::span<const std::int32_t> words;  // (rows, n); a negative id ends a sequence
    std::uint8_t* lengths;                // (rows,): length of the longest stored prefix
    float* log_probs;                     // (rows, n): of the prefix of k words at k − 1; else 0
    float* log_backoffs;                  // (rows, n − 1): likewise
};

// The words stored after a context. After the empty context these are all words.
struct Extensions {
    bool is_stored = false;  // whether the context is stored
    float log_backoff = 0;
    std::vector<std::int32_t> words;
    std::vector<float> log_probs;
};

template <NgramLayout Layout>
class PrefixLookup {
  public:
    PrefixLookup(const Layout& layout, std::size_t order) : layout_(layout), order_(order) {}

    // Groups of sequences are looked up order by order, so that memory accesses overlap.
    void prefixes(const PrefixBatch& batch) const {
        const std::size_t rows = batch.words.size() / order_;
        for (std::size_t from = 0; from < rows; from += kGroup)
            group(batch, from, std::min(kGroup, rows - from));
    }

    Extensions extensions(std::span<const std::int32_t> context, std::uint32_t vocabulary) const {
        Extensions result;
        if (context.empty()) {
            result.is_stored = true;
            for (std::uint32_t word = 0; word < vocabulary; ++word)
                add(result, word, layout_.first(word).log_prob);
            return result;
        }
        Lookup lookup = layout_.first(static_cast<std::uint32_t>(context[0]));
        for (std::size_t n = 2; n <= context.size(); ++n) {
            if (!lookup.children.size()) return result;
            lookup = layout_.find(n, lookup.children, static_cast<std::uint32_t>(context[n - 1]));
            if (!lookup.is_present) return result;
        }
        result.is_stored = true;
        result.log_backoff = lookup.log_backoff;
        for (std::uint32_t row = lookup.children.from; row < lookup.children.to; ++row) {
            std::uint32_t word = 0;
            const Lookup child = layout_.at(context.size() + 1, row, word);
            if (word < vocabulary) add(result, word, child.log_prob);
        }
        return result;
    }

  private:
    static constexpr std::size_t kGroup = 32;

    static void add(Extensions& into, std::uint32_t word, float log_prob) {
        into.words.push_back(static_cast<std::int32_t>(word));
        into.log_probs.push_back(log_prob);
    }

    void group(const PrefixBatch& batch, std::size_t from, std::size_t rows) const {
        std::array<Children, kGroup> children;
        std::array<std::size_t, kGroup> pending;  // rows whose prefixes are stored so far
        std::size_t count = 0;
        const auto word = [&](std::size_t row, std::size_t n) {
            return batch.words[(from + row) * order_ + n - 1];
        };
        std::fill_n(batch.log_probs + from * order_, rows * order_, 0.0F);
        std::fill_n(batch.log_backoffs + from * (order_ - 1), rows * (order_ - 1), 0.0F);
        for (std::size_t row = 0; row < rows; ++row) {
            batch.lengths[from + row] = 0;
            if (word(row, 1) < 0) continue;
            children[row] =
                keep(batch, from + row, 1, layout_.first(static_cast<std::uint32_t>(word(row, 1))));
            pending[count++] = row;
        }
        for (std::size_t n = 2; n <= order_ && count > 0; ++n) {
            std::size_t open = 0;
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t row = pending[i];
                if (word(row, n) < 0 || !children[row].size()) continue;
                pending[open++] = row;
                layout_.prefetch(n, children[row], static_cast<std::uint32_t>(word(row, n)));
            }
            for (std::size_t i = 0; i < open; ++i)
                layout_.prefetch_row(n, children[pending[i]],
                                     static_cast<std::uint32_t>(word(pending[i], n)));
            count = 0;
            for (std::size_t i = 0; i < open; ++i) {
                const std::size_t row = pending[i];
                const Lookup lookup =
                    layout_.find(n, children[row], static_cast<std::uint32_t>(word(row, n)));
                if (!lookup.is_present) continue;
                children[row] = keep(batch, from + row, n, lookup);
                pending[count++] = row;
            }
        }
    }

    Children keep(const PrefixBatch& batch, std::size_t row, std::size_t n, const Lookup& lookup) const {
        batch.lengths[row] = static_cast<std::uint8_t>(n);
        batch.log_probs[row * order_ + n - 1] = lookup.log_prob;
        if (n < order_) batch.log_backoffs[row * (order_ - 1) + n - 1] = lookup.log_backoff;
        return lookup.children;
    }

    const Layout& layout_;
    std::size_t order_;
};

}  // namespace chainrule
