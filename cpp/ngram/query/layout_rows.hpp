// The rows of a model file as Rows, to write it again in another form.
#pragma once

#include "ngram/format/layout.hpp"
#include "ngram/format/model_file.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// The layout and the facts must outlive it.
template <class Layout>
class LayoutRows final : public Rows {
  public:
    LayoutRows(const Layout& layout, const FileFacts& facts) : layout_(layout), facts_(facts) {}

    std::size_t order() const override { return facts_.sizes.size(); }
    std::uint64_t size(std::size_t n) const override { return facts_.sizes[n - 1]; }
    void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word, float* log_prob,
              float* log_backoff, std::uint32_t* first) const override {
        if (first && count == 0) first[0] = edge(n, from);
        for (std::size_t i = 0; i < count; ++i) {
            std::uint32_t w = 0;
            const Found row = layout_.at(n, static_cast<std::uint32_t>(from + i), w);
            if (word) word[i] = w;
            if (log_prob) log_prob[i] = row.log_prob;
            if (log_backoff) log_backoff[i] = row.log_backoff;
            if (first) {
                first[i] = row.children.from;
                first[i + 1] = row.children.to;
            }
        }
    }

  private:
    // Where the continuations of the rows from `row` on begin.
    std::uint32_t edge(std::size_t n, std::uint64_t row) const {
        std::uint32_t word = 0;
        if (row < size(n)) return layout_.at(n, static_cast<std::uint32_t>(row), word).children.from;
        return row ? layout_.at(n, static_cast<std::uint32_t>(row - 1), word).children.to : 0;
    }

    const Layout& layout_;
    const FileFacts& facts_;
};

}  // namespace chainrule
