// Opening a file of the layout "small": every size that reading relies on is checked here.
#include "ngram/format/compact_layout.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "base/logarithm.hpp"
#include "ngram/format/names.hpp"

namespace chainrule {

namespace {

template <class T>
T read_at(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Content that is used as it is. All else that a row or a block says is kept within bounds as it is read.
class ContentCheck {
  public:
    explicit ContentCheck(const ModelFile& file) : file_(&file) {}

    void operator()(std::uint32_t section, std::uint64_t from, std::uint64_t to) const {
        const char* const bytes = file_->section(section).data();
        bool is_good = true;
        if (section == kByProbability) {
            for (std::uint64_t at = from; at + 4 <= to; at += 4)
                is_good &= read_at<std::uint32_t>(bytes + at) < file_->facts().model.vocabulary;
        } else if (section == small_section(SmallPart::records, 1)) {
            for (std::uint64_t at = from; at + 4 <= to; at += 4)  // the third number of a row is no float
                is_good &= at % sizeof(SmallUnigram) == 8 || is_log_value(read_at<float>(bytes + at));
        }
        if (!is_good) file_->fail("it has a word that cannot be");
    }

  private:
    const ModelFile* file_;  // owns this check
};

}  // namespace

SmallLayout::SmallLayout(std::shared_ptr<ModelFile> file) : file_(std::move(file)) {
    const FileFacts& facts = file_->facts();
    if (facts.layout != LayoutKind::small) file_->fail("its layout is not \"small\"");
    vocabulary_ = facts.model.vocabulary;
    bigrams_ = facts.sizes.size() > 1 ? static_cast<std::uint32_t>(facts.sizes[1]) : 0;
    unigrams_ = part(SmallPart::records, 1, sizeof(SmallUnigram) * (std::uint64_t{vocabulary_} + 1)).data();
    const std::span<const char> falling = file_->section(kByProbability);
    if (falling.size() != std::size_t{4} * vocabulary_) file_->fail("its words by probability are not there");
    by_probability_ = {reinterpret_cast<const std::uint32_t*>(falling.data()), vocabulary_};
    file_->on_verified(ContentCheck(*file_));
    const std::size_t above = facts.sizes.size() - 1;
    const std::span<const char> columns = part(SmallPart::columns, 1, sizeof(SmallColumns) * above);
    file_->touch(columns.data(), columns.size());
    for (std::size_t k = 0; k < above; ++k) {
        SmallColumns of_order;
        std::memcpy(&of_order, columns.data() + sizeof of_order * k, sizeof of_order);
        open_level(k + 2, of_order);
    }
}

std::span<const std::uint32_t> SmallLayout::by_probability() const {
    file_->touch(by_probability_.data(), by_probability_.size_bytes());
    return by_probability_;
}

void SmallLayout::open_level(std::size_t n, const SmallColumns& columns) {
    const std::vector<std::uint64_t>& sizes = file_->facts().sizes;
    const std::uint64_t size = sizes[n - 1];
    if (columns.word_bits != static_cast<std::uint32_t>(std::bit_width(vocabulary_ - 1)))
        file_->fail("its words are not as wide as its vocabulary");
    Level level;
    level.prob = open_column(n, SmallPart::probs, columns.prob_coding, columns.prob_bits);
    level.word_bits = columns.word_bits;
    level.word_mask = low_bits(columns.word_bits);
    level.to_backoff = columns.word_bits + columns.prob_bits;
    if (n < sizes.size()) {
        level.backoff = open_column(n, SmallPart::backoffs, columns.backoff_coding, columns.backoff_bits);
        level.next_size = static_cast<std::uint32_t>(sizes[n]);
        const std::uint64_t blocks = small_blocks(size);
        level.samples = part(SmallPart::samples, n, 4 * (blocks + 1)).data();
        level.children = part(SmallPart::children, n, packed_bytes(sizes[n] + kSmallBlock * blocks)).data();
    } else if (columns.backoff_bits != 0) {
        file_->fail("its highest order has back-off weights");
    }
    level.record_bits = columns.record_bits();
    level.records = part(SmallPart::records, n, packed_bytes(size * level.record_bits)).data();
    levels_.push_back(level);
}

SmallLayout::Column SmallLayout::open_column(std::size_t n, SmallPart table, std::uint32_t coding,
                                             std::uint32_t bits) const {
    Column column;
    column.coding = static_cast<Coding>(coding);
    column.mask = low_bits(bits);
    if (coding == static_cast<std::uint32_t>(Coding::table) && bits <= kMostTableBits) {
        const std::span<const char> values = part(table, n, sizeof(float) << bits);
        file_->touch(values.data(), values.size());
        column.table = values.data();
        for (std::size_t i = 0; i < values.size(); i += sizeof(float))
            if (!is_log_value(read_at<float>(values.data() + i))) file_->fail("a value is not a number");
        return column;
    }
    const bool is_plain = coding == static_cast<std::uint32_t>(Coding::plain) && bits == kPlainBits;
    const bool is_signless = coding == static_cast<std::uint32_t>(Coding::signless) && bits == kSignlessBits;
    if (!is_plain && !is_signless) file_->fail("a column is packed in no known way");
    return column;
}

std::span<const char> SmallLayout::part(SmallPart part, std::size_t n, std::uint64_t size) const {
    const std::span<const char> bytes = file_->section(small_section(part, n));
    if (bytes.size() != size)
        file_->fail("section " + std::to_string(static_cast<std::uint32_t>(part)) + " of order " +
                    std::to_string(n) + " does not have its size");
    return bytes;
}

}  // namespace chainrule
