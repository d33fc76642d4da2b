#include "ngram/partition/windows.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/byte_stream.hpp"
#include "base/error.hpp"
#include "text/words.hpp"

namespace chainrule {

namespace {

// Windows are sorted by the nearest context word, the word itself, then the rest of the context: windows that
// share most words follow each other, and every word but the first differing one is close to the last.
constexpr std::size_t kNearest = 1;

// Position in a window (word, nearest word, …) of its k-th sort key.
constexpr std::size_t position_of_key(std::size_t k, std::uint32_t order) {
    return order == 1 ? 0 : k == 0 ? kNearest : k == 1 ? 0 : k;
}

// Whether the keys before the k-th contain <s>, before which there is only <s>: the rest is not stored.
template <class Key>
bool is_complete(std::uint32_t k, const Key& key, std::uint32_t begin) {
    return k > 1 && (key(0) == begin || key(k - 1) == begin);
}

// A record starts each window with one byte: the number of leading keys shared with the previous window, and
// the count, kMany for a larger one that follows.
struct HeadByte {
    explicit HeadByte(std::uint32_t order) : count_bits(order <= 16 ? 4 : 3), many((1U << count_bits) - 1) {}
    std::uint32_t count_bits, many;
};

// A window by position in the text, with the leading bits of its sort key.
struct SortedWindow {
    std::uint64_t key;
    std::uint32_t position;
};

// Sorts by key, least significant digit first.
void radix_sort(std::vector<SortedWindow>& windows, unsigned key_bits) {
    constexpr unsigned kDigit = 11;
    constexpr std::size_t kFew = 2048;
    if (windows.size() < kFew) {
        std::ranges::sort(windows, {}, &SortedWindow::key);
        return;
    }
    std::vector<SortedWindow> other(windows.size());
    for (unsigned shift = 0; shift < key_bits; shift += kDigit) {
        std::array<std::size_t, 1U << kDigit> begins{};
        const auto digit = [shift](const SortedWindow& window) {
            return static_cast<std::size_t>(window.key >> shift) & ((1U << kDigit) - 1);
        };
        for (const SortedWindow& window : windows) ++begins[digit(window)];
        if (begins[digit(windows.front())] == windows.size()) continue;
        std::size_t sum = 0;
        for (std::size_t& begin : begins) sum += std::exchange(begin, sum);
        for (const SortedWindow& window : windows) other[begins[digit(window)]++] = window;
        windows.swap(other);
    }
}

}  // namespace

WindowEncoder::WindowEncoder(const PartitionPlan& plan)
    : plan_(plan), order_(plan.shape().order), positions_(plan.partitions()) {
    begin_line();
}

void WindowEncoder::begin_line() { words_.insert(words_.end(), order_ - 1, plan_.shape().begin); }

void WindowEncoder::start(std::span<const std::int32_t> words) {
    const WindowShape& shape = plan_.shape();
    if (!shape.is_stream || tokens_ > 0) throw ArgumentError("words before a text belong to a stream");
    for (const std::int32_t word : words) words_.push_back(static_cast<std::uint32_t>(word));
    words_.erase(words_.begin(), words_.end() - (order_ - 1));
    for (const std::uint32_t word : words_)
        if (word >= shape.vocabulary) throw ArgumentError("the words before the text are out of range");
}

inline void WindowEncoder::push(std::uint32_t id) {
    words_.push_back(id);
    const std::size_t position = words_.size() - 1;
    if (order_ > 1) {
        const std::uint32_t* const nearest = &words_[position - 1];
        const auto context = [nearest](std::uint32_t k) { return *(nearest - k); };
        positions_[plan_.place(context).partition].push_back(static_cast<std::uint32_t>(position));
    } else {
        positions_[0].push_back(static_cast<std::uint32_t>(position));
    }
    ++windows_;
    ++tokens_;
    if (id == plan_.shape().end && !plan_.shape().is_stream) begin_line();
}

void WindowEncoder::add(std::span<const std::int32_t> ids) {
    const WindowShape& shape = plan_.shape();
    for (const std::int32_t id : ids) {
        if (id < 0 || static_cast<std::uint32_t>(id) >= shape.vocabulary)
            throw ArgumentError("the text contains the id " + std::to_string(id) +
                                "; ids must be below the vocabulary size, " +
                                std::to_string(shape.vocabulary));
        if (static_cast<std::uint32_t>(id) == shape.begin)
            throw ArgumentError(
                "the text contains the id of <s>, which is added to each line automatically; remove it");
        push(static_cast<std::uint32_t>(id));
    }
    check_size();
}

void WindowEncoder::check_size() const {
    if (words_.size() > std::numeric_limits<std::uint32_t>::max() / 2)
        throw ArgumentError("too many windows are collected at once; take them more often");
}

void WindowEncoder::add_text(std::string_view lines, const WordEncoding& encoding) {
    const auto on_word = [&](const Word& word) {
        const std::int32_t id = encoding.find(word);
        unknown_ += id == encoding.unknown;
        push(static_cast<std::uint32_t>(id));
    };
    std::string buffer;
    scan_words(encoding.splitting.apply(lines, buffer), on_word,
               [&] { push(static_cast<std::uint32_t>(encoding.end)); });
    check_size();
}

std::string WindowEncoder::encode(std::vector<std::uint32_t>& positions) const {
    const WindowShape& shape = plan_.shape();
    const auto word_bits = static_cast<unsigned>(std::bit_width(shape.vocabulary - 1));
    const auto keys = std::min<std::uint32_t>(order_, 64 / std::max(word_bits, 1U));
    // The k-th sort key of the window that ends at a position.
    const auto key_at = [&](std::uint32_t position, std::size_t k) {
        return words_[position - position_of_key(k, order_)];
    };
    std::vector<SortedWindow> sorted;
    sorted.reserve(positions.size());
    for (const std::uint32_t position : positions) {
        std::uint64_t key = 0;
        for (std::uint32_t k = 0; k < keys; ++k) key = key << word_bits | key_at(position, k);
        sorted.push_back({key, position});
    }
    std::vector<std::uint32_t>().swap(positions);
    radix_sort(sorted, keys * word_bits);
    // Returns the first key from `k` on that differs, or the order.
    const auto differs_at = [&](std::uint32_t a, std::uint32_t b, std::uint32_t k) {
        while (k < order_ && key_at(a, k) == key_at(b, k)) ++k;
        return k;
    };
    if (keys < order_) {
        for (std::size_t i = 0; i < sorted.size();) {
            std::size_t end = i + 1;
            while (end < sorted.size() && sorted[end].key == sorted[i].key) ++end;
            std::sort(sorted.begin() + static_cast<std::ptrdiff_t>(i),
                      sorted.begin() + static_cast<std::ptrdiff_t>(end),
                      [&](const SortedWindow& a, const SortedWindow& b) {
                          const std::uint32_t k = differs_at(a.position, b.position, keys);
                          return k < order_ && key_at(a.position, k) < key_at(b.position, k);
                      });
            i = end;
        }
    }
    const HeadByte head(order_);
    ByteWriter out;
    for (std::size_t i = 0; i < sorted.size();) {
        const std::uint32_t position = sorted[i].position;
        std::uint64_t count = 1;
        while (i + count < sorted.size() && sorted[i + count].key == sorted[i].key &&
               differs_at(position, sorted[i + count].position, keys) == order_)
            ++count;
        const std::uint32_t shared = i ? differs_at(sorted[i - 1].position, position, 0) : 0;
        out.number(
            static_cast<std::uint8_t>(shared << head.count_bits | std::min<std::uint64_t>(count, head.many)));
        if (count >= head.many) out.varint(count);
        const std::uint32_t previous = i ? key_at(sorted[i - 1].position, shared) : 0;
        out.varint(key_at(position, shared) - previous);
        const auto key = [&](std::uint32_t k) { return key_at(position, k); };
        for (std::uint32_t k = shared + 1; k < order_ && !is_complete(k, key, shape.begin); ++k)
            out.varint(key(k));
        i += count;
    }
    return out.take();
}

std::vector<WindowEncoder::Record> WindowEncoder::take() {
    std::vector<Record> records;
    for (std::uint32_t partition = 0; partition < positions_.size(); ++partition)
        if (!positions_[partition].empty()) records.emplace_back(partition, encode(positions_[partition]));
    words_.erase(words_.begin(), words_.end() - (order_ - 1));
    windows_ = 0;
    return records;
}

void decode_windows(std::string_view record, const WindowShape& shape, std::uint64_t limit, Windows& into) {
    const std::uint32_t N = shape.order;
    const HeadByte head(N);
    into.order = N;
    std::array<std::uint32_t, 32> keys{};
    ByteReader in(record);
    bool is_first = true;
    while (!in.is_at_end()) {
        const std::uint8_t byte = in.byte();
        const std::uint32_t shared = byte >> head.count_bits;
        std::uint64_t count = byte & head.many;
        if (count == head.many) count = in.varint();
        if (shared >= N || count == 0) ByteReader::fail();
        keys[shared] = in.varint32() + (is_first ? 0 : keys[shared]);
        is_first = false;
        const auto key = [&](std::uint32_t i) { return keys[i]; };
        std::uint32_t k = shared + 1;
        for (; k < N && !is_complete(k, key, shape.begin); ++k) keys[k] = in.varint32();
        std::fill(keys.begin() + k, keys.begin() + N, shape.begin);
        if (std::any_of(keys.begin() + shared, keys.begin() + k,
                        [&](std::uint32_t word) { return word >= shape.vocabulary; }))
            ByteReader::fail();
        if (into.size() >= std::min(limit, kMaxWindows))
            throw Error("a partition has more than " + std::to_string(std::min(limit, kMaxWindows)) +
                        " different windows; choose a smaller --partition");
        const std::size_t begin = into.words.size();
        into.words.resize(begin + N);
        for (std::uint32_t k = 0; k < N; ++k) into.words[begin + position_of_key(k, N)] = keys[k];
        into.counts.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(count, 0xFFFFFFFF)));
    }
}

}  // namespace chainrule
