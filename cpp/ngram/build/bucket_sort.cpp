#include "ngram/build/bucket_sort.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace chainrule {

namespace {

// Numbers per range: with larger buffers, those of all ranges leave the caches.
constexpr std::size_t kMaxBuffered = 1 << 13;

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

WordRanges::WordRanges(std::span<const std::uint64_t> times, std::uint64_t most, std::size_t parts)
    : begins_{0}, sizes_{0}, range_of_(times.size()) {
    std::uint64_t all = 0;
    for (std::uint32_t w = 0; w < times.size(); ++w) {
        if (sizes_.back() > 0 && sizes_.back() + times[w] > most) {
            begins_.push_back(w);
            sizes_.push_back(0);
        }
        sizes_.back() += times[w];
        all += times[w];
        range_of_[w] = static_cast<std::uint32_t>(sizes_.size() - 1);
    }
    begins_.push_back(static_cast<std::uint32_t>(times.size()));
    std::uint64_t in_part = 0;
    for (std::size_t r = 0; r < sizes_.size(); ++r) {
        if (r == 0 || in_part + sizes_[r] / 2 > all / parts) {
            parts_.push_back(r);
            in_part = 0;
        }
        in_part += sizes_[r];
        part_of_.push_back(static_cast<std::uint32_t>(parts_.size() - 1));
    }
    parts_.push_back(sizes_.size());
}

BucketFile::BucketFile(std::shared_ptr<const SpillFolder> folder, std::size_t width, RecordCounts counts)
    : width_(width), file_(std::move(folder)), next_(std::move(counts)) {
    std::uint64_t at = 0;
    for (std::size_t r = 0; r < next_.ranges(); ++r) {
        begins_.push_back(at);
        for (std::size_t p = 0; p < next_.parts(); ++p) at += std::exchange(next_.of(p, r), at);
    }
    begins_.push_back(at);
}

BucketWriter::BucketWriter(BucketFile& file, std::size_t part, std::span<std::uint32_t> buffers)
    : file_(file), part_(part), width_(file.width()) {
    const std::size_t ranges = file.ranges();
    buffered_ = std::min(buffers.size() / ranges, kMaxBuffered) / width_ * width_;
    if (buffered_ == 0) {
        buffered_ = width_;
        least_ = UninitializedBuffer<std::uint32_t>(buffered_ * ranges);
        buffers = {least_.data(), least_.size()};
    }
    buckets_.reserve(ranges);
    for (std::size_t r = 0; r < ranges; ++r) buckets_.push_back({buffers.data() + r * buffered_, 0});
}

void BucketWriter::flush(std::size_t range) {
    Bucket& bucket = buckets_[range];
    const std::uint64_t at =
        std::atomic_ref<std::uint64_t>(file_.next_.of(part_, range)).fetch_add(bucket.filled / width_);
    file_.file_.write(at * width_, bucket.buffer, bucket.filled);
    bucket.filled = 0;
}

void BucketWriter::finish() {
    for (std::size_t r = 0; r < buckets_.size(); ++r)
        if (buckets_[r].filled > 0) flush(r);
}

namespace {

// Calls use(records, count) with consecutive blocks of a range.
template <class Use>
void for_each_block(const BucketFile& file, std::size_t range, std::span<std::uint32_t> stream,
                    const Use& use) {
    const std::size_t at_once = std::max<std::size_t>(stream.size() / file.width(), 1);
    const std::uint64_t size = file.size(range);
    for (std::uint64_t done = 0; done < size; done += at_once) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(at_once, size - done));
        file.read(range, done, stream.data(), count);
        use(stream.data(), count);
    }
}

}  // namespace

void read_sorted(const BucketFile& file, const WordRanges& ranges, std::size_t range,
                 std::span<const std::uint32_t> times, std::span<std::uint32_t> sorted, std::size_t most,
                 std::span<std::uint32_t> stream, const UseRecords& use) {
    const std::uint64_t size = file.size(range);
    if (size == 0) return;
    if (size * file.width() > sorted.size() || (most > 0 && size > most)) {
        // Too large to sort: the records are of a single word and in order already.
        for_each_block(file, range, stream, [&](const std::uint32_t* records, std::size_t count) {
            use(records[0] & ~kMark, records, count);
        });
        return;
    }
    const std::uint32_t from = ranges.begin(range), to = ranges.end(range);
    UninitializedBuffer<std::uint32_t> next_position(to - from);  // of the next record of each word
    std::uint32_t at = 0;
    for (std::uint32_t w = from; w < to; ++w) {
        next_position[w - from] = at;
        at += times[w];
    }
    with_width(file.width(), [&](auto width) {
        for_each_block(file, range, stream, [&](const std::uint32_t* record, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i, record += width) {
                const std::size_t position = next_position[(record[0] & ~kMark) - from]++;
                std::memcpy(sorted.data() + position * width, record, width * sizeof(std::uint32_t));
            }
        });
    });
    const std::uint32_t* records = sorted.data();
    for (std::uint32_t w = from; w < to; ++w) {
        if (times[w] > 0) use(w, records, times[w]);
        records += times[w] * file.width();
    }
}

}  // namespace chainrule
