#include "ngram/format/hashed_layout.hpp"

#include <algorithm>
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

}  // namespace chainrule
