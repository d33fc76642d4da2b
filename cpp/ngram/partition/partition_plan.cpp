#include "ngram/partition/partition_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "base/byte_stream.hpp"
#include "base/error.hpp"

namespace chainrule {

namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kMaxPartitions = 1U << 24;
constexpr std::uint32_t kMaxOrder = 32;

void check_shape(const WindowShape& shape) {
    if (shape.order == 0 || shape.order > kMaxOrder)
        throw ArgumentError("order is " + std::to_string(shape.order) + "; choose a number from 1 to 32");
    if (shape.begin >= shape.vocabulary || shape.end >= shape.vocabulary || shape.begin == shape.end)
        throw ArgumentError("<s> and </s> must have different ids below the vocabulary size");
}

std::uint32_t hash_of(std::uint32_t word) {
    return static_cast<std::uint32_t>(word * 0x9E3779B97F4A7C15ULL >> 32);
}

}  // namespace

// Builds a plan from the different windows of a sample, sorted by context.
class PartitionPlan::Balancer {
  public:
    Balancer(const WindowShape& shape, std::span<const std::int32_t> sample, std::uint32_t partitions,
             std::uint64_t limit)
        : width_(shape.order) {
        plan_.shape_ = shape;
        plan_.partitions_ = partitions;
        plan_.words_.assign(shape.vocabulary, 0);
        add_windows(sample);
        limit_ = limit ? limit : std::max<std::uint64_t>(1, size() / partitions / 2);
    }

    PartitionPlan build(std::uint32_t ranges) {
        for (std::uint32_t word = 0; word < plan_.shape_.vocabulary; ++word)
            plan_.words_[word] = hash_of(word) % plan_.partitions_;  // words that the sample lacks
        std::vector<std::uint64_t> loads(plan_.shape_.vocabulary);
        for_each_word(0, size(), 1, [&](std::uint32_t word, std::size_t from, std::size_t to) {
            loads[word] = to - from;
            add_context(word, from, to, 1, kNotSplit);
        });
        assign();
        plan_.set_contexts();
        set_ranges(loads, ranges);
        return std::move(plan_);
    }

  private:
    // Part of the windows that one partition receives: a whole context, or a bucket of a split one.
    struct Unit {
        std::uint64_t load;
        std::uint32_t node;    // kNotSplit: a single word
        std::uint32_t word;    // of the word, or of the child; unused for a bucket
        std::uint32_t bucket;  // kNotSplit: not a bucket
    };

    std::size_t size() const { return order_.size(); }
    const std::uint32_t* window(std::size_t i) const { return &windows_[order_[i] * width_]; }

    // Windows as context, nearest word first, and the word itself last.
    void add_windows(std::span<const std::int32_t> sample) {
        const WindowShape& shape = plan_.shape_;
        if (width_ == 1) return;  // unigrams have no context
        std::vector<std::uint32_t> context(width_ - 1, shape.begin);
        for (const std::int32_t id : sample) {
            const auto word = static_cast<std::uint32_t>(id);
            if (id < 0 || word >= shape.vocabulary)
                throw ArgumentError("the sample contains the id " + std::to_string(id) +
                                    "; ids must be below the vocabulary size, " +
                                    std::to_string(shape.vocabulary));
            windows_.insert(windows_.end(), context.begin(), context.end());
            windows_.push_back(word);
            if (word == shape.end && !shape.is_stream) {
                std::fill(context.begin(), context.end(), shape.begin);
            } else {
                std::copy_backward(context.begin(), context.end() - 1, context.end());
                context[0] = word;
            }
        }
        order_.resize(windows_.size() / width_);
        std::iota(order_.begin(), order_.end(), 0);
        const auto row = [&](std::size_t i) { return std::span(&windows_[i * width_], width_); };
        std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
            return std::ranges::lexicographical_compare(row(a), row(b));
        });
        order_.erase(
            std::unique(order_.begin(), order_.end(),
                        [&](std::size_t a, std::size_t b) { return std::ranges::equal(row(a), row(b)); }),
            order_.end());
    }

    // Calls use(word, from, to) for the runs of equal words number `length` of the contexts [from, to).
    template <class Use>
    void for_each_word(std::size_t from, std::size_t to, std::uint32_t length, const Use& use) const {
        while (from < to) {
            const std::uint32_t word = window(from)[length - 1];
            std::size_t last = from + 1;
            while (last < to && window(last)[length - 1] == word) ++last;
            use(word, from, last);
            from = last;
        }
    }

    // The context of `length` words whose windows are [from, to), and whose farthest word is `word`.
    void add_context(std::uint32_t word, std::size_t from, std::size_t to, std::uint32_t length,
                     std::uint32_t parent) {
        const bool is_longest = length + 1 >= width_ || word == plan_.shape_.begin;
        if (to - from <= limit_ || is_longest) {
            units_.push_back({to - from, parent, word, kNotSplit});
            return;
        }
        const auto node = static_cast<std::uint32_t>(plan_.nodes_.size());
        plan_.nodes_.push_back({parent, word, {}, {}});
        set_target(parent, word, kNode | node);
        std::uint64_t rest = 0;
        for_each_word(from, to, length + 1, [&](std::uint32_t before, std::size_t begin, std::size_t end) {
            if ((end - begin) * 4 > limit_) {
                plan_.nodes_[node].children.push_back({before, 0});
                add_context(before, begin, end, length + 1, node);
            } else {
                rest += end - begin;
            }
        });
        const auto buckets = static_cast<std::uint32_t>(
            std::clamp<std::uint64_t>((2 * rest + limit_ - 1) / limit_, 1, plan_.partitions_));
        plan_.nodes_[node].buckets.resize(buckets);
        for (std::uint32_t i = 0; i < buckets; ++i) units_.push_back({rest / buckets, node, 0, i});
    }

    void set_target(std::uint32_t node, std::uint32_t word, std::uint32_t target) {
        if (node == kNotSplit) {
            plan_.words_[word] = target;
            return;
        }
        std::vector<Child>& children = plan_.nodes_[node].children;
        std::ranges::lower_bound(children, word, {}, &Child::word)->target = target;
    }

    // The largest unit first, each to the partition with the least load.
    void assign() {
        std::ranges::stable_sort(units_, std::greater<>(), &Unit::load);
        using Load = std::pair<std::uint64_t, std::uint32_t>;
        std::priority_queue<Load, std::vector<Load>, std::greater<>> queue;
        for (std::uint32_t partition = 0; partition < plan_.partitions_; ++partition)
            queue.push({0, partition});
        for (const Unit& unit : units_) {
            const auto [load, partition] = queue.top();
            queue.pop();
            queue.push({load + unit.load, partition});
            if (unit.bucket != kNotSplit)
                plan_.nodes_[unit.node].buckets[unit.bucket] = partition;
            else
                set_target(unit.node, unit.word, partition);
        }
    }

    // Ranges of first words with about the same number of windows.
    void set_ranges(const std::vector<std::uint64_t>& loads, std::uint32_t ranges) {
        const std::uint64_t total = size() + loads.size();  // every word has a row of order 1
        std::uint64_t sum = 0;
        plan_.ranges_.push_back(0);
        for (std::uint32_t word = 0; word < loads.size(); ++word) {
            if (word > plan_.ranges_.back() && plan_.ranges_.size() < ranges &&
                sum * ranges >= total * plan_.ranges_.size())
                plan_.ranges_.push_back(word);
            sum += loads[word] + 1;
        }
        plan_.ranges_.push_back(plan_.shape_.vocabulary);
    }

    PartitionPlan plan_;
    std::size_t width_;
    std::uint64_t limit_ = 0;
    std::vector<std::uint32_t> windows_;
    std::vector<std::size_t> order_;  // windows by context
    std::vector<Unit> units_;
};

PartitionPlan PartitionPlan::balance(const WindowShape& shape, std::span<const std::int32_t> sample,
                                     std::uint32_t partitions, std::uint64_t limit, std::uint32_t ranges) {
    check_shape(shape);
    if (partitions == 0 || partitions > kMaxPartitions)
        throw ArgumentError("partitions is " + std::to_string(partitions) +
                            "; choose a number from 1 to 2^24");
    return Balancer(shape, sample, partitions, limit).build(std::max(ranges, 1U));
}

std::uint32_t PartitionPlan::next(const Node& node, std::uint32_t word) {
    const auto child = std::ranges::lower_bound(node.children, word, {}, &Child::word);
    if (child != node.children.end() && child->word == word) return child->target;
    return node.buckets[hash_of(word) % node.buckets.size()];
}

void PartitionPlan::set_contexts() {
    contexts_.resize(nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i].parent != kNotSplit) contexts_[i] = contexts_[nodes_[i].parent];
        contexts_[i].push_back(nodes_[i].word);
    }
}

std::string PartitionPlan::bytes() const {
    ByteWriter out;
    out.number(kVersion);
    for (const std::uint32_t value : {shape_.order, shape_.vocabulary, shape_.begin, shape_.end,
                                      static_cast<std::uint32_t>(shape_.is_stream), partitions_})
        out.number(value);
    out.align();
    out.array(std::span(words_));
    out.align();
    out.array(std::span(ranges_));
    out.align();
    out.number<std::uint64_t>(nodes_.size());
    for (const Node& node : nodes_) {
        out.number(node.parent);
        out.number(node.word);
        out.array(std::span(node.children));
        out.array(std::span(node.buckets));
        out.align();
    }
    return out.take();
}

PartitionPlan::PartitionPlan(std::string_view bytes) {
    ByteReader in(bytes);
    if (in.number<std::uint32_t>() != kVersion) ByteReader::fail();
    std::uint32_t is_stream = 0;
    for (std::uint32_t* value :
         {&shape_.order, &shape_.vocabulary, &shape_.begin, &shape_.end, &is_stream, &partitions_})
        *value = in.number<std::uint32_t>();
    shape_.is_stream = is_stream != 0;
    const auto copy = [&in](auto& values) {
        const auto stored = in.array<typename std::remove_reference_t<decltype(values)>::value_type>();
        values.assign(stored.begin(), stored.end());
    };
    in.align();
    copy(words_);
    in.align();
    copy(ranges_);
    in.align();
    const auto size = in.number<std::uint64_t>();
    for (std::uint64_t i = 0; i < size; ++i) {
        Node node;
        node.parent = in.number<std::uint32_t>();
        node.word = in.number<std::uint32_t>();
        copy(node.children);
        copy(node.buckets);
        in.align();
        if (node.buckets.empty() || (node.parent != kNotSplit && node.parent >= i)) ByteReader::fail();
        nodes_.push_back(std::move(node));
    }
    const auto is_target = [&](std::uint32_t target) {
        return target & kNode ? (target & ~kNode) < nodes_.size() : target < partitions_;
    };
    const auto are_targets = [&](const Node& node) {
        return std::ranges::all_of(node.buckets, [&](std::uint32_t p) { return p < partitions_; }) &&
               std::ranges::all_of(node.children,
                                   [&](const Child& child) { return is_target(child.target); });
    };
    if (words_.size() != shape_.vocabulary || !std::ranges::all_of(words_, is_target) ||
        !std::ranges::all_of(nodes_, are_targets) || ranges_.size() < 2)
        ByteReader::fail();
    check_shape(shape_);
    set_contexts();
}

}  // namespace chainrule
