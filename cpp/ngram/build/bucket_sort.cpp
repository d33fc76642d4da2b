#include "ngram/build/bucket_sort.hpp"

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>

namespace chainrule {

namespace {

// Passes common record widths as compile-time constants, so that copies become a few instructions.
template <class Work>
void with_width(std::size_t width, const Work& work) {
    switch (width) {
        case 1:
            return work(std::integral_constant<std::size_t, 1>());
        case 2:
            return work(std::integral_constant<std::size_t, 2>());
        case 3:
            return work(std::integral_constant<std::size_t, 3>());
        case 4:
            return work(std::integral_constant<std::size_t, 4>());
        case 5:
            return work(std::integral_constant<std::size_t, 5>());
        case 6:
            return work(std::integral_constant<std::size_t, 6>());
        case 7:
            return work(std::integral_constant<std::size_t, 7>());
        case 8:
            return work(std::integral_constant<std::size_t, 8>());
        default:
            return work(width);
    }
}

}  // namespace

BucketSorter::BucketSorter(std::shared_ptr<const SpillFolder> folder, BucketSortMemory& space,
                           std::span<const std::uint32_t> times, std::size_t width)
    : space_(space), times_(times), width_(width), file_(std::move(folder)), range_of_(times.size()) {
    std::uint64_t most = space.sorted.size() / width;
    if (space.records > 0) most = std::min<std::uint64_t>(most, space.records);
    std::uint64_t begin = 0;
    ranges_.push_back({0, 0, 0, 0});
    for (std::uint32_t w = 0; w < times.size(); ++w) {
        if (ranges_.back().size > 0 && ranges_.back().size + times[w] > most)
            ranges_.push_back({w, w, begin, 0});
        ranges_.back().to = w + 1;
        ranges_.back().size += times[w];
        begin += times[w];
        range_of_[w] = static_cast<std::uint32_t>(ranges_.size() - 1);
    }
    buffered_ = std::max<std::size_t>(space.buckets / ranges_.size() / width, 1) * width;
    buffers_ = UninitializedBuffer<std::uint32_t>(buffered_ * ranges_.size());
    for (std::size_t i = 0; i < ranges_.size(); ++i) ranges_[i].buffer = buffers_.data() + i * buffered_;
}

void BucketSorter::flush(Range& range) {
    file_.write(range.begin * width_ + range.written, range.buffer, range.filled);
    range.written += std::exchange(range.filled, 0);
}

void BucketSorter::finish() {
    for (Range& range : ranges_) flush(range);
    buffers_ = {};
    range_of_ = {};
}

bool BucketSorter::is_sortable(const Range& range) const {
    return range.size * width_ <= space_.sorted.size() &&
           (space_.records == 0 || range.size <= space_.records);
}

void BucketSorter::sorted(const Use& use) {
    std::future<void> ahead;  // its destructor waits for the thread
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
        const Range& range = ranges_[i];
        if (ahead.valid()) {
            ahead.get();
            std::swap(space_.sorted, space_.ahead);
        } else if (is_sortable(range)) {
            sort(range, space_.sorted.data());
        }
        if (space_.ahead.size() && i + 1 < ranges_.size() && is_sortable(ranges_[i + 1]))
            ahead = std::async(std::launch::async, &BucketSorter::sort, this, std::cref(ranges_[i + 1]),
                               space_.ahead.data());
        if (!is_sortable(range)) {
            stream(range, use);
            continue;
        }
        const std::uint32_t* at = space_.sorted.data();
        for (std::uint32_t w = range.from; w < range.to; ++w) {
            if (times_[w] > 0) use(w, at, times_[w]);
            at += times_[w] * width_;
        }
    }
}

// A range too large to sort has records of a single word, which are in order already.
void BucketSorter::stream(const Range& range, const Use& use) const {
    const std::size_t at_once = std::max<std::size_t>(space_.stream / width_, 1);
    UninitializedBuffer<std::uint32_t> records(at_once * width_);
    const auto has_records = [&](std::uint32_t w) { return times_[w] > 0; };
    std::uint32_t word = range.from;
    while (!has_records(word)) ++word;
    for (std::uint64_t done = 0; done < range.size; done += at_once) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(at_once, range.size - done));
        file_.read((range.begin + done) * width_, records.data(), count * width_);
        use(word, records.data(), count);
    }
}

void BucketSorter::sort(const Range& range, std::uint32_t* into) const {
    UninitializedBuffer<std::uint32_t> next_position(range.to -
                                                     range.from);  // position of the next record of each word
    std::uint32_t at = 0;
    for (std::uint32_t w = range.from; w < range.to; ++w) {
        next_position[w - range.from] = at;
        at += times_[w];
    }
    const std::size_t at_once = std::max<std::size_t>(space_.stream / width_, 1);
    UninitializedBuffer<std::uint32_t> records(at_once * width_);
    for (std::uint64_t done = 0; done < range.size; done += at_once) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(at_once, range.size - done));
        file_.read((range.begin + done) * width_, records.data(), count * width_);
        with_width(width_, [&](auto width) {
            const std::uint32_t* record = records.data();
            for (std::size_t i = 0; i < count; ++i, record += width) {
                const std::size_t to = next_position[(record[0] & ~kMark) - range.from]++;
                std::memcpy(into + to * width, record, width * sizeof(std::uint32_t));
            }
        });
    }
}

}  // namespace chainrule
