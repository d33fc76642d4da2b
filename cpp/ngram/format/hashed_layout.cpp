#include "ngram/format/hashed_layout.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/logarithm.hpp"
#include "ngram/format/names.hpp"

namespace chainrule {

namespace {

// What content each section must have for its readers to stay inside the sections; `facts` is a copy, since a
// check may outlive its layout.
class ContentCheck {
  public:
    ContentCheck(const ModelFile& file, const FileFacts& facts) : file_(&file), facts_(facts) {}

    void operator()(std::uint32_t section, std::uint64_t from, std::uint64_t to) const {
        const char* const bytes = file_->section(section).data();
        if (section == kByProbability) {
            check_words(reinterpret_cast<const std::uint32_t*>(bytes + from), (to - from) / 4);
        } else if (section > kFastRows && section <= kFastRows + facts_.sizes.size()) {
            const std::size_t order = section - kFastRows;
            if (order == facts_.sizes.size()) {
                check_rows(reinterpret_cast<const FastTopRow*>(bytes + from),
                           (to - from) / sizeof(FastTopRow));
            } else {
                check_rows(reinterpret_cast<const FastRow*>(bytes + from), (to - from) / sizeof(FastRow),
                           facts_.sizes[order]);
            }
        }
    }

  private:
    void check_words(const std::uint32_t* words, std::size_t count) const {
        std::uint32_t most = 0;
        for (std::size_t i = 0; i < count; ++i) most = std::max(most, words[i]);
        if (most >= facts_.model.vocabulary) file_->fail("it has a word that is not in its vocabulary");
    }
    void check_rows(const FastTopRow* rows, std::size_t count) const {
        bool is_good = true;
        for (std::size_t i = 0; i < count; ++i)
            is_good &= (rows[i].word < facts_.model.vocabulary) & is_log_value(rows[i].log_prob);
        if (!is_good) file_->fail("it has a row that cannot be");
    }
    void check_rows(const FastRow* rows, std::size_t count, std::uint64_t next_size) const {
        bool is_good = true;
        std::uint32_t last = 0;
        for (std::size_t i = 0; i < count; ++i) {
            is_good &= (rows[i].word < facts_.model.vocabulary) & (rows[i].first <= next_size) &
                       (rows[i].first >= last) & is_log_value(rows[i].log_prob) &
                       is_log_value(rows[i].log_backoff);
            last = rows[i].first;
        }
        if (!is_good) file_->fail("it has a row that cannot be");
    }

    const ModelFile* file_;  // owns this check
    FileFacts facts_;
};

}  // namespace

FastLayout::FastLayout(std::shared_ptr<ModelFile> file) : file_(std::move(file)) {
    const FileFacts& facts = file_->facts();
    if (facts.layout != LayoutKind::fast || facts.bits != 0) file_->fail("its layout is not the fast one");
    const auto section = [&](std::uint32_t id, std::uint64_t size) {
        const std::span<const char> bytes = file_->section(id);
        if (bytes.size() != size) file_->fail("a section does not fit its header");
        return bytes.data();
    };
    for (std::uint32_t n = 1; n <= facts.sizes.size(); ++n) {
        const std::uint64_t size = facts.sizes[n - 1];
        Order here;
        here.size = static_cast<std::uint32_t>(size);
        if (n == facts.sizes.size()) {
            here.top = reinterpret_cast<const FastTopRow*>(section(kFastRows + n, sizeof(FastTopRow) * size));
        } else {
            here.rows =
                reinterpret_cast<const FastRow*>(section(kFastRows + n, sizeof(FastRow) * (size + 1)));
        }
        if (n > 1) here.index = section(kFastIndex + n, fast_index_bytes(size));
        orders_.push_back(here);
    }
    const std::size_t words = facts.model.vocabulary;
    by_probability_ = {reinterpret_cast<const std::uint32_t*>(section(kByProbability, 4 * words)), words};
    file_->on_verified(ContentCheck(*file_, facts));
}

std::span<const std::uint32_t> FastLayout::by_probability() const {
    file_->touch(by_probability_.data(), by_probability_.size_bytes());
    return by_probability_;
}

// The words from j V / c on begin behind directory[j] rows; within those few rows the search halves them.
template <class Row>
std::uint32_t FastLayout::row_by_order(const Row* rows, std::size_t order, Children in,
                                       std::uint32_t word) const {
    const auto* const directory = reinterpret_cast<const std::uint32_t*>(slots_of(order, in));
    const std::uint32_t c = in.size();
    const std::uint32_t j = directory_slot(word, c, file_->facts().model.vocabulary);
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

template std::uint32_t FastLayout::row_by_order(const FastRow*, std::size_t, Children, std::uint32_t) const;
template std::uint32_t FastLayout::row_by_order(const FastTopRow*, std::size_t, Children,
                                                std::uint32_t) const;

// Rows as sections of the layout "fast", made a piece at a time from whatever rows there are.

namespace {

constexpr std::size_t kAtOnce = 8192;  // rows read by one call

void fill_rows(const Rows& rows, std::size_t n, std::uint64_t from, std::uint64_t to, FastRow* into) {
    std::vector<std::uint32_t> word(kAtOnce), first(kAtOnce + 1);
    std::vector<float> log_prob(kAtOnce), log_backoff(kAtOnce);
    const std::uint64_t size = rows.size(n), end = std::min(to, size);
    for (std::uint64_t at = from; at < end; at += kAtOnce) {
        const std::size_t count = std::min<std::uint64_t>(kAtOnce, end - at);
        rows.read(n, at, count, word.data(), log_prob.data(), log_backoff.data(), first.data());
        for (std::size_t i = 0; i < count; ++i) *into++ = {word[i], log_prob[i], log_backoff[i], first[i]};
    }
    // The row behind the last, for where the last one's continuations end.
    if (to > size) *into = {0, 0, 0, static_cast<std::uint32_t>(rows.size(n + 1))};
}

void fill_top_rows(const Rows& rows, std::uint64_t from, std::uint64_t to, FastTopRow* into) {
    std::vector<std::uint32_t> word(kAtOnce);
    std::vector<float> log_prob(kAtOnce);
    for (std::uint64_t at = from; at < to; at += kAtOnce) {
        const std::size_t count = std::min<std::uint64_t>(kAtOnce, to - at);
        rows.read(rows.order(), at, count, word.data(), log_prob.data(), nullptr, nullptr);
        for (std::size_t i = 0; i < count; ++i) *into++ = {word[i], log_prob[i]};
    }
}

// The index of one context in its 4c bytes, which are 0.
void fill_context(const std::uint32_t* words, std::uint32_t c, std::uint32_t vocabulary, char* into) {
    if (c >= kHashed) {
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
        const std::uint64_t mixed = FastHash::mix(words[row]);
        std::uint32_t slot = FastHash::home(c, mixed);
        while (slots[slot]) slot = slot + 1 == 2 * c ? 0 : slot + 1;
        slots[slot] = static_cast<std::uint16_t>(FastHash::tag(FastHash::bits(c), mixed) | (row + 1));
    }
}

// The index of rows [from, to) of order n, 4 bytes a row.
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
    // The context that row `row` continues: the last one that begins there or before.
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
        // It reaches into another piece: made whole, and the part taken that lies here.
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
    section.id = kFastRows + n;
    if (n == rows.order()) {
        section.size = sizeof(FastTopRow) * rows.size(n);
        section.fill = [&rows](std::uint64_t from, std::uint64_t size, char* into) {
            fill_top_rows(rows, from / sizeof(FastTopRow), (from + size) / sizeof(FastTopRow),
                          reinterpret_cast<FastTopRow*>(into));
        };
    } else {
        section.size = sizeof(FastRow) * (rows.size(n) + 1);
        section.fill = [&rows, n](std::uint64_t from, std::uint64_t size, char* into) {
            fill_rows(rows, n, from / sizeof(FastRow), (from + size) / sizeof(FastRow),
                      reinterpret_cast<FastRow*>(into));
        };
    }
    return section;
}

Section index_section(const Rows& rows, std::uint32_t n) {
    Section section;
    section.id = kFastIndex + n;
    section.size = fast_index_bytes(rows.size(n));
    section.fill = [&rows, n](std::uint64_t from, std::uint64_t size, char* into) {
        std::memset(into, 0, size);
        const std::uint64_t to = std::min((from + size) / 4, rows.size(n));
        if (from / 4 < to) IndexPiece(rows, n, from / 4, to, into).fill();
    };
    return section;
}

// Rising as the logarithm falls, then as the number rises.
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

std::vector<Section> fast_sections(const Rows& rows, const FileFacts& facts) {
    if (facts.sizes.size() != rows.order()) throw Failure("the rows are of another order than the model");
    std::vector<Section> sections{by_probability_section(rows)};
    for (std::uint32_t n = 1; n <= rows.order(); ++n) {
        sections.push_back(rows_section(rows, n));
        if (n > 1) sections.push_back(index_section(rows, n));
    }
    return sections;
}

}  // namespace chainrule
