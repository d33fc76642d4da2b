#include "ngram/format/hashed_layout.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/logarithm.hpp"
#include "ngram/format/stored_vocabulary.hpp"

namespace chainrule {

namespace {

// Validates the content that readers rely on to stay inside the sections. `metadata` is a copy because a
// check may outlive its layout.
class ContentCheck {
  public:
    ContentCheck(const ModelFile& file, const FileMetadata& metadata) : file_(&file), metadata_(metadata) {}

    void operator()(std::uint32_t section, std::uint64_t from, std::uint64_t to) const {
        const char* const bytes = file_->section(section).data();
        if (section == kByProbability) {
            check_words(reinterpret_cast<const std::uint32_t*>(bytes + from), (to - from) / 4);
        } else if (section > kHashedRows && section <= kHashedRows + metadata_.sizes.size()) {
            const std::size_t order = section - kHashedRows;
            if (order == metadata_.sizes.size()) {
                check_rows(reinterpret_cast<const HashedTopRow*>(bytes + from),
                           (to - from) / sizeof(HashedTopRow));
            } else {
                check_rows(reinterpret_cast<const HashedRow*>(bytes + from), (to - from) / sizeof(HashedRow),
                           metadata_.sizes[order]);
            }
        }
    }

  private:
    void check_words(const std::uint32_t* words, std::size_t count) const {
        std::uint32_t most = 0;
        for (std::size_t i = 0; i < count; ++i) most = std::max(most, words[i]);
        if (most >= metadata_.model.vocabulary) file_->fail("it has a word that is not in its vocabulary");
    }
    void check_rows(const HashedTopRow* rows, std::size_t count) const {
        bool is_good = true;
        for (std::size_t i = 0; i < count; ++i)
            is_good &= (rows[i].word < metadata_.model.vocabulary) & is_log_value(rows[i].log_prob);
        if (!is_good) file_->fail("it contains an invalid row");
    }
    void check_rows(const HashedRow* rows, std::size_t count, std::uint64_t next_size) const {
        bool is_good = true;
        std::uint32_t last = 0;
        for (std::size_t i = 0; i < count; ++i) {
            is_good &= (rows[i].word < metadata_.model.vocabulary) & (rows[i].first <= next_size) &
                       (rows[i].first >= last) & is_log_value(rows[i].log_prob) &
                       is_log_value(rows[i].log_backoff);
            last = rows[i].first;
        }
        if (!is_good) file_->fail("it contains an invalid row");
    }

    const ModelFile* file_;  // owns this check
    FileMetadata metadata_;
};

}  // namespace

HashedLayout::HashedLayout(std::shared_ptr<ModelFile> file) : file_(std::move(file)) {
    const FileMetadata& metadata = file_->metadata();
    if (metadata.layout != LayoutKind::fast || metadata.bits != 0)
        file_->fail("its layout is not the fast one");
    const auto section = [&](std::uint32_t id, std::uint64_t size) {
        const std::span<const char> bytes = file_->section(id);
        if (bytes.size() != size) file_->fail("a section does not fit its header");
        return bytes.data();
    };
    for (std::uint32_t n = 1; n <= metadata.sizes.size(); ++n) {
        const std::uint64_t size = metadata.sizes[n - 1];
        Order level;
        level.size = static_cast<std::uint32_t>(size);
        if (n == metadata.sizes.size()) {
            level.top =
                reinterpret_cast<const HashedTopRow*>(section(kHashedRows + n, sizeof(HashedTopRow) * size));
        } else {
            level.rows =
                reinterpret_cast<const HashedRow*>(section(kHashedRows + n, sizeof(HashedRow) * (size + 1)));
        }
        if (n > 1) level.index = section(kHashedIndex + n, hashed_index_bytes(size));
        orders_.push_back(level);
    }
    const std::size_t words = metadata.model.vocabulary;
    by_probability_ = {reinterpret_cast<const std::uint32_t*>(section(kByProbability, 4 * words)), words};
    file_->on_verified(ContentCheck(*file_, metadata));
}

std::span<const std::uint32_t> HashedLayout::by_probability() const {
    file_->touch(by_probability_.data(), by_probability_.size_bytes());
    return by_probability_;
}

// Words from j V / c on start at row directory[j]; binary search within that small range.
template <class Row>
std::uint32_t HashedLayout::row_by_directory(const Row* rows, std::size_t order, Children in,
                                             std::uint32_t word) const {
    const auto* const directory = reinterpret_cast<const std::uint32_t*>(slots_of(order, in));
    const std::uint32_t c = in.size();
    const std::uint32_t j = directory_slot(word, c, file_->metadata().model.vocabulary);
    file_->touch(directory + j, j + 1 < c ? 8 : 4);
    std::uint32_t low = in.from + std::min(directory[j], c);
    std::uint32_t high = in.from + (j + 1 < c ? std::min(directory[j + 1], c) : c);
    while (low < high) {
        const std::uint32_t middle = low + (high - low) / 2;
        file_->touch(rows + middle, sizeof(Row));
        if (rows[middle].word == word) return middle;
        if (rows[middle].word < word) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return kNone;
}

template std::uint32_t HashedLayout::row_by_directory(const HashedRow*, std::size_t, Children,
                                                      std::uint32_t) const;
template std::uint32_t HashedLayout::row_by_directory(const HashedTopRow*, std::size_t, Children,
                                                      std::uint32_t) const;

// Writing: sections are filled piece by piece from any Rows.

namespace {

constexpr std::size_t kAtOnce = 8192;  // rows read by one call

void fill_rows(const Rows& rows, std::size_t n, std::uint64_t from, std::uint64_t to, HashedRow* into) {
    std::vector<std::uint32_t> word(kAtOnce), first(kAtOnce + 1);
    std::vector<float> log_prob(kAtOnce), log_backoff(kAtOnce);
    const std::uint64_t size = rows.size(n), end = std::min(to, size);
    for (std::uint64_t at = from; at < end; at += kAtOnce) {
        const std::size_t count = std::min<std::uint64_t>(kAtOnce, end - at);
        rows.read(n, at, count, word.data(), log_prob.data(), log_backoff.data(), first.data());
        for (std::size_t i = 0; i < count; ++i) *into++ = {word[i], log_prob[i], log_backoff[i], first[i]};
    }
    // A final row marks the end of the last extensions.
    if (to > size) *into = {0, 0, 0, static_cast<std::uint32_t>(rows.size(n + 1))};
}

void fill_top_rows(const Rows& rows, std::uint64_t from, std::uint64_t to, HashedTopRow* into) {
    std::vector<std::uint32_t> word(kAtOnce);
    std::vector<float> log_prob(kAtOnce);
    for (std::uint64_t at = from; at < to; at += kAtOnce) {
        const std::size_t count = std::min<std::uint64_t>(kAtOnce, to - at);
        rows.read(rows.order(), at, count, word.data(), log_prob.data(), nullptr, nullptr);
        for (std::size_t i = 0; i < count; ++i) *into++ = {word[i], log_prob[i]};
    }
}

// Builds the index of one context in its 4c bytes, which are zero.
void fill_context(const std::uint32_t* words, std::uint32_t c, std::uint32_t vocabulary, char* into) {
    if (c >= kMinSorted) {
        auto* const directory = reinterpret_cast<std::uint32_t*>(into);
        std::uint32_t row = 0;
        for (std::uint32_t j = 0; j < c; ++j) {
            while (row < c && directory_slot(words[row], c, vocabulary) < j) ++row;
            directory[j] = row;
        }
        return;
    }
    auto* const slots = reinterpret_cast<std::uint16_t*>(into);
    for (std::uint32_t row = 0; row < c; ++row) {
        const std::uint64_t mixed = ChildHash::mix(words[row]);
        std::uint32_t slot = ChildHash::home(c, mixed);
        while (slots[slot]) slot = slot + 1 == 2 * c ? 0 : slot + 1;
        slots[slot] = static_cast<std::uint16_t>(ChildHash::tag(ChildHash::bits(c), mixed) | (row + 1));
    }
}

// Builds the index of rows [from, to) of order n, 4 bytes per row.
class IndexPiece {
  public:
    IndexPiece(const Rows& rows, std::size_t n, std::uint64_t from, std::uint64_t to, char* into)
        : rows_(rows), n_(n), from_(from), to_(to), into_(into), words_(to - from) {
        rows.read(n, from, to - from, words_.data(), nullptr, nullptr, nullptr);
        vocabulary_ = static_cast<std::uint32_t>(rows.size(1));
    }

    void fill() {
        std::vector<std::uint32_t> first(kAtOnce + 1);
        for (std::uint64_t at = context_of(from_); at < rows_.size(n_ - 1); at += kAtOnce) {
            const std::size_t count = std::min<std::uint64_t>(kAtOnce, rows_.size(n_ - 1) - at);
            rows_.read(n_ - 1, at, count, nullptr, nullptr, nullptr, first.data());
            for (std::size_t i = 0; i < count; ++i) {
                if (first[i] >= to_) return;
                if (first[i + 1] > from_ && first[i + 1] > first[i]) context(first[i], first[i + 1]);
            }
        }
    }

  private:
    // The context of `row`: the last context whose extensions begin at or before it.
    std::uint64_t context_of(std::uint64_t row) const {
        std::uint64_t low = 0, high = rows_.size(n_ - 1);  // first[low] ≤ row
        while (high - low > 1) {
            const std::uint64_t middle = low + (high - low) / 2;
            std::uint32_t first[2];
            rows_.read(n_ - 1, middle, 1, nullptr, nullptr, nullptr, first);
            (first[0] <= row ? low : high) = middle;
        }
        return low;
    }

    void context(std::uint32_t begin, std::uint32_t end) {
        const std::uint32_t c = end - begin;
        if (begin >= from_ && end <= to_) {
            fill_context(words_.data() + (begin - from_), c, vocabulary_, into_ + 4 * (begin - from_));
            return;
        }
        // The context extends into another piece: build its whole index and copy the part in this
        // piece.
        std::vector<std::uint32_t> words(c), index(c);
        rows_.read(n_, begin, c, words.data(), nullptr, nullptr, nullptr);
        auto* const whole = reinterpret_cast<char*>(index.data());
        fill_context(words.data(), c, vocabulary_, whole);
        const std::uint64_t low = std::max<std::uint64_t>(begin, from_),
                            high = std::min<std::uint64_t>(end, to_);
        std::memcpy(into_ + 4 * (low - from_), whole + 4 * (low - begin), 4 * (high - low));
    }

    const Rows& rows_;
    std::size_t n_;
    std::uint64_t from_, to_;
    char* into_;
    std::vector<std::uint32_t> words_;
    std::uint32_t vocabulary_;
};

Section rows_section(const Rows& rows, std::uint32_t n) {
    Section section;
    section.id = kHashedRows + n;
    if (n == rows.order()) {
        section.size = sizeof(HashedTopRow) * rows.size(n);
        section.fill = [&rows](std::uint64_t from, std::uint64_t size, char* into) {
            fill_top_rows(rows, from / sizeof(HashedTopRow), (from + size) / sizeof(HashedTopRow),
                          reinterpret_cast<HashedTopRow*>(into));
        };
    } else {
        section.size = sizeof(HashedRow) * (rows.size(n) + 1);
        section.fill = [&rows, n](std::uint64_t from, std::uint64_t size, char* into) {
            fill_rows(rows, n, from / sizeof(HashedRow), (from + size) / sizeof(HashedRow),
                      reinterpret_cast<HashedRow*>(into));
        };
    }
    return section;
}

Section index_section(const Rows& rows, std::uint32_t n) {
    Section section;
    section.id = kHashedIndex + n;
    section.size = hashed_index_bytes(rows.size(n));
    section.fill = [&rows, n](std::uint64_t from, std::uint64_t size, char* into) {
        std::memset(into, 0, size);
        const std::uint64_t to = std::min((from + size) / 4, rows.size(n));
        if (from / 4 < to) IndexPiece(rows, n, from / 4, to, into).fill();
    };
    return section;
}

// Sort key: descending by log-probability, then ascending by word id.
std::uint64_t falling_key(float log_prob, std::uint32_t number) {
    const auto bits = std::bit_cast<std::uint32_t>(log_prob + 0.0F);  // −0 becomes 0
    const std::uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000U;
    return static_cast<std::uint64_t>(~rising) << 32 | number;
}

std::vector<std::uint32_t> words_by_probability(const Rows& rows) {
    const auto words = static_cast<std::uint32_t>(rows.size(1));
    std::vector<float> log_prob(words);
    rows.read(1, 0, words, nullptr, log_prob.data(), nullptr, nullptr);
    std::vector<std::uint64_t> keys(words);
    for (std::uint32_t i = 0; i < words; ++i) keys[i] = falling_key(log_prob[i], i);
    std::ranges::sort(keys);
    std::vector<std::uint32_t> sorted(words);
    for (std::uint32_t i = 0; i < words; ++i) sorted[i] = static_cast<std::uint32_t>(keys[i]);
    return sorted;
}

}  // namespace

Section by_probability_section(const Rows& rows) {
    const auto sorted = std::make_shared<std::vector<std::uint32_t>>();
    Section section;
    section.id = kByProbability;
    section.size = 4 * rows.size(1);
    section.prepare = [&rows, sorted] { *sorted = words_by_probability(rows); };
    section.fill = [sorted](std::uint64_t from, std::uint64_t size, char* into) {
        std::memcpy(into, reinterpret_cast<const char*>(sorted->data()) + from, size);
    };
    section.done = [sorted] { std::vector<std::uint32_t>().swap(*sorted); };
    return section;
}

std::vector<Section> hashed_sections(const Rows& rows, const FileMetadata& metadata) {
    if (metadata.sizes.size() != rows.order())
        throw ArgumentError("the rows are of another order than the model");
    std::vector<Section> sections{by_probability_section(rows)};
    for (std::uint32_t n = 1; n <= rows.order(); ++n) {
        sections.push_back(rows_section(rows, n));
        if (n > 1) sections.push_back(index_section(rows, n));
    }
    return sections;
}

}  // namespace chainrule
