// Assignment of the n-grams of a text to partitions that can be counted and estimated independently.
//
// A window is a token with the order − 1 words before it: w c1 c2 …, nearest word first. It goes to a
// partition by c1, the last word of its context. All n-grams that end in w with a context of one word or more
// then have their context and, from order 3 on, their suffix in the same partition, so counts, discounted
// sums and interpolation are local for orders 2 and higher.
//
// A context with too many windows is split by the word before it, to any depth: a tree of reversed contexts.
// An n-gram whose whole context is a split context occurs in several partitions. Its counts are added up
// (count_sums.hpp); everything longer is local.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chainrule {

// What windows depend on besides the words of the text.
struct WindowShape {
    std::uint32_t order = 0, vocabulary = 0, begin = 0, end = 0;
    bool is_stream = false;  // one <s>; windows cross line boundaries
};

inline constexpr std::uint32_t kNotSplit = 0xFFFFFFFF;

class PartitionPlan {
  public:
    // Balances the partitions on a sample of the text: ids with `end` after each line. A context with more
    // than `limit` different windows of the sample is split; 0 means half of a partition's share. The rows of
    // the model are divided into at most `ranges` ranges of first words.
    static PartitionPlan balance(const WindowShape& shape, std::span<const std::int32_t> sample,
                                 std::uint32_t partitions, std::uint64_t limit, std::uint32_t ranges);
    // Reads the plan from the bytes that `bytes` returned.
    explicit PartitionPlan(std::string_view bytes);
    std::string bytes() const;

    const WindowShape& shape() const { return shape_; }
    std::uint32_t partitions() const { return partitions_; }
    std::size_t split_contexts() const { return nodes_.size(); }

    // Partition of a context of order − 1 words, nearest word first, and how many of its suffixes are split.
    struct Place {
        std::uint32_t partition, depth;
    };
    // `word(k)` is the k-th word of the context, 0 the nearest.
    template <class Context>
    Place place(const Context& word) const {
        std::uint32_t target = words_[word(0)], depth = 0;
        while (target & kNode) target = next(nodes_[target & ~kNode], word(++depth));
        return {target, depth};
    }
    // The same for a context of `length` words; the number of the split context if it is one.
    struct Owner {
        std::uint32_t partition, split = kNotSplit;
    };
    template <class Context>
    Owner owner(const Context& word, std::uint32_t length) const {
        std::uint32_t target = words_[word(0)], depth = 0;
        while (target & kNode) {
            if (++depth == length) return {0, target & ~kNode};
            target = next(nodes_[target & ~kNode], word(depth));
        }
        return {target};
    }
    // Words of a split context, nearest word first, and the split context without the farthest word, or
    // kNotSplit.
    std::span<const std::uint32_t> context_of(std::uint32_t split) const { return contexts_[split]; }
    std::uint32_t parent_of(std::uint32_t split) const { return nodes_[split].parent; }

    // First word of each range of rows, and the vocabulary size.
    std::span<const std::uint32_t> ranges() const { return ranges_; }

  private:
    struct Child {
        std::uint32_t word, target;
    };
    struct Node {
        std::uint32_t parent, word;          // parent: kNotSplit for a context of one word
        std::vector<Child> children;         // frequent words before the context, sorted
        std::vector<std::uint32_t> buckets;  // partitions of the other words, by hash
    };
    class Balancer;
    friend class Balancer;

    static constexpr std::uint32_t kNode = 0x80000000;  // a target is a partition, or kNode + a split context

    PartitionPlan() = default;
    static std::uint32_t next(const Node& node, std::uint32_t word);
    void set_contexts();

    WindowShape shape_;
    std::uint32_t partitions_ = 1;
    std::vector<std::uint32_t> words_;  // target by word
    std::vector<Node> nodes_;           // by number; a parent precedes its children
    std::vector<std::vector<std::uint32_t>> contexts_;
    std::vector<std::uint32_t> ranges_;
};

}  // namespace chainrule
