#include "ngram/partition/assemble.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "base/byte_stream.hpp"
#include "base/error.hpp"
#include "ngram/partition/context_runs.hpp"

namespace chainrule {

namespace {

// Rows of one order in a range.
struct RangeLevel {
    std::vector<std::uint32_t> word, first;  // `first` counts within the range
    std::vector<float> log_prob, log_backoff;
    std::vector<std::uint32_t> parent;  // row of the context one order down
};

class RangeAssembler {
  public:
    RangeAssembler(const PartitionPlan& plan, const GlobalEstimates& global,
                   const std::vector<std::string_view>& records)
        : plan_(plan),
          global_(global),
          order_(plan.shape().order),
          streams_(plan.partitions()),
          levels_(order_) {
        for (const std::string_view record : records) {
            ByteReader in(record);
            const std::uint64_t partition = in.varint();
            if (partition >= streams_.size()) ByteReader::fail();
            streams_[partition] = in;
        }
    }

    std::vector<RangeLevel> assemble(std::uint32_t first_word, std::uint32_t end_word) {
        RangeLevel& unigrams = levels_[0];
        unigrams.word.resize(end_word - first_word);
        std::iota(unigrams.word.begin(), unigrams.word.end(), first_word);
        const auto log_prob = global_.log_unigrams().subspan(first_word, unigrams.word.size());
        unigrams.log_prob.assign(log_prob.begin(), log_prob.end());
        for (std::uint32_t n = 2; n <= order_; ++n) extend(n);
        return std::move(levels_);
    }

  private:
    // Adds the rows of order n, context by context. The plan tells where the run of a context is, and runs
    // are sorted, so it is the next one there or there is none.
    void extend(std::uint32_t n) {
        readers_.clear();
        for (ByteReader& stream : streams_) {
            readers_.push_back(stream.is_at_end() ? RunReader() : RunReader(n, stream));
        }
        RangeLevel &contexts = levels_[n - 2], &rows = levels_[n - 1];
        std::array<std::uint32_t, 32> context;  // from the first word to the last
        const auto nearest_first = [&](std::uint32_t k) { return context[n - 2 - k]; };
        for (std::size_t row = 0; row < contexts.word.size(); ++row) {
            set_context(n - 1, row, context);
            contexts.first.push_back(static_cast<std::uint32_t>(rows.word.size()));
            const PartitionPlan::Owner owner = plan_.owner(nearest_first, n - 1);
            if (owner.split != kNotSplit) {
                const GlobalEstimates::SplitContext& split = global_.split(owner.split);
                contexts.log_backoff.push_back(split.log_backoff);
                rows.word.insert(rows.word.end(), split.words.begin(), split.words.end());
                rows.log_prob.insert(rows.log_prob.end(), split.log_prob.begin(), split.log_prob.end());
            } else {
                contexts.log_backoff.push_back(
                    add_run(readers_[owner.partition], std::span(context.data(), n - 1), rows));
            }
            rows.parent.resize(rows.word.size(), static_cast<std::uint32_t>(row));
        }
        const bool are_read = std::ranges::none_of(readers_, &RunReader::has_run);
        if (!are_read) throw Error("n-grams of a partition have no context; a record is missing");
        if (rows.word.size() > std::numeric_limits<std::uint32_t>::max())
            throw Error("a range has more than 2^32 n-grams of one order; choose a smaller --partition");
    }

    // Words of a row of order n.
    void set_context(std::uint32_t n, std::size_t row, std::array<std::uint32_t, 32>& context) const {
        for (std::uint32_t k = n; k-- > 0;) {
            context[k] = levels_[k].word[row];
            if (k > 0) row = levels_[k].parent[row];
        }
    }

    // Appends the next run if it is that of `context`; returns log γ.
    static float add_run(RunReader& reader, std::span<const std::uint32_t> context, RangeLevel& rows) {
        if (!reader.has_run() || !std::ranges::equal(reader.context(), context)) return 0;
        for (std::uint32_t i = 0; i < reader.size(); ++i) {
            rows.word.push_back(reader.next_word());
            rows.log_prob.push_back(reader.next_log_prob());
        }
        const float log_backoff = reader.log_backoff();
        reader.next();
        return log_backoff;
    }

    const PartitionPlan& plan_;
    const GlobalEstimates& global_;
    std::uint32_t order_;
    std::vector<ByteReader> streams_;  // by partition, at the next order
    std::vector<RunReader> readers_;   // by partition, of the current order
    std::vector<RangeLevel> levels_;
};

}  // namespace

std::string assemble_range(const PartitionPlan& plan, const GlobalEstimates& global, std::uint32_t range,
                           const std::vector<std::string_view>& records) {
    const auto ranges = plan.ranges();
    if (range + 1 >= ranges.size()) throw ArgumentError("there is no range " + std::to_string(range));
    const std::vector<RangeLevel> levels =
        RangeAssembler(plan, global, records).assemble(ranges[range], ranges[range + 1]);
    ByteWriter out;
    for (const RangeLevel& level : levels) {
        for (const auto* column : {&level.word, &level.first}) {
            out.array(std::span<const std::uint32_t>(*column));
            out.align();
        }
        for (const auto* column : {&level.log_prob, &level.log_backoff}) {
            out.array(std::span<const float>(*column));
            out.align();
        }
    }
    return out.take();
}

RangeRows::RangeRows(std::uint32_t order, const std::vector<std::string_view>& tables) : sizes_(order) {
    for (const std::string_view table : tables) {
        ByteReader in(table);
        std::vector<Level>& levels = ranges_.emplace_back();
        for (std::uint32_t n = 1; n <= order; ++n) {
            Level level{sizes_[n - 1], {}, {}, {}, {}};
            for (auto* column : {&level.word, &level.first}) {
                *column = in.array<std::uint32_t>();
                in.align();
            }
            for (auto* column : {&level.log_prob, &level.log_backoff}) {
                *column = in.array<float>();
                in.align();
            }
            const std::size_t size = level.word.size(), contexts = n < order ? size : 0;
            if (level.log_prob.size() != size || level.first.size() != contexts ||
                level.log_backoff.size() != contexts)
                ByteReader::fail();
            sizes_[n - 1] += size;
            levels.push_back(level);
        }
    }
}

std::size_t RangeRows::range_of(std::size_t n, std::uint64_t row) const {
    const auto after = std::upper_bound(
        ranges_.begin(), ranges_.end(), row,
        [n](std::uint64_t value, const std::vector<Level>& levels) { return value < levels[n - 1].begin; });
    return static_cast<std::size_t>(after - ranges_.begin()) - 1;
}

std::uint64_t RangeRows::first_of(std::size_t n, std::uint64_t row) const {
    if (row == sizes_[n - 1]) return sizes_[n];
    const std::vector<Level>& levels = ranges_[range_of(n, row)];
    return levels[n].begin + levels[n - 1].first[row - levels[n - 1].begin];
}

void RangeRows::read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word,
                     float* log_prob, float* log_backoff, std::uint32_t* first) const {
    const bool is_top = n == order();
    for (std::size_t done = 0; done < count;) {
        const std::vector<Level>& levels = ranges_[range_of(n, from + done)];
        const Level& level = levels[n - 1];
        const std::size_t at = static_cast<std::size_t>(from + done - level.begin);
        const std::size_t size = std::min(count - done, level.word.size() - at);
        if (word) std::copy_n(level.word.begin() + static_cast<std::ptrdiff_t>(at), size, word + done);
        if (log_prob)
            std::copy_n(level.log_prob.begin() + static_cast<std::ptrdiff_t>(at), size, log_prob + done);
        if (log_backoff && is_top) std::fill_n(log_backoff + done, size, 0.0F);
        if (log_backoff && !is_top)
            std::copy_n(level.log_backoff.begin() + static_cast<std::ptrdiff_t>(at), size,
                        log_backoff + done);
        if (first && !is_top) {
            const auto begin = static_cast<std::uint32_t>(levels[n].begin);
            for (std::size_t i = 0; i < size; ++i) first[done + i] = begin + level.first[at + i];
        }
        done += size;
    }
    if (first && !is_top) first[count] = static_cast<std::uint32_t>(first_of(n, from + count));
}

}  // namespace chainrule
