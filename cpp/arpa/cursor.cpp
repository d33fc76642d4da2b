#include "arpa/cursor.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace chainrule {

namespace {

constexpr std::uint64_t kHeld = 4096;  // rows

}  // namespace

ContextCursor::ContextCursor(const Rows& rows, const std::vector<std::string>& names, std::uint32_t left_out,
                             std::size_t order, std::uint64_t row)
    : rows_(rows), names_(names), left_out_(left_out), order_(order), at_(order - 1) {
    for (std::size_t n = order - 1; n >= 1; --n) {
        row = parent(n, row);
        at_[n - 1].row = row;
        hold(n - 1);
    }
    if (order > 1) spell();
}

// The row of order n that `row` of the next order continues: the last one whose continuations do not begin
// behind it.
std::uint64_t ContextCursor::parent(std::size_t n, std::uint64_t row) const {
    std::uint64_t from = 0, to = rows_.size(n);  // it is in [from, to)
    while (to - from > 1) {
        const std::uint64_t middle = from + (to - from) / 2;
        std::uint32_t first[2];
        rows_.read(n, middle, 1, nullptr, nullptr, nullptr, first);
        (first[0] <= row ? from : to) = middle;
    }
    return from;
}

// Reads the rows from the one that order k + 1 stands at.
void ContextCursor::hold(std::size_t k) {
    At& at = at_[k];
    const std::uint64_t size = rows_.size(k + 1);
    if (at.row >= size) throw Failure("the model's tables do not fit together: a row has no context");
    const auto count = static_cast<std::size_t>(std::min(kHeld, size - at.row));
    at.held_from = at.row;
    at.word.resize(count);
    at.first.resize(count + 1);
    rows_.read(k + 1, at.row, count, at.word.data(), nullptr, nullptr, at.first.data());
    at.end = at.first[1];
    if (*std::max_element(at.word.begin(), at.word.end()) >= names_.size())
        throw Failure("the model's tables have words without a name");
}

void ContextCursor::advance(std::size_t k, std::uint64_t until) {
    At& at = at_[k];
    changed_ = std::min(changed_, k);
    while (at.end <= until) {
        ++at.row;
        const std::uint64_t held = at.row - at.held_from;
        if (held < at.word.size()) {
            at.end = at.first[held + 1];
        } else {
            hold(k);
        }
    }
    if (k > 0 && at_[k - 1].end <= at.row) advance(k - 1, at.row);
}

void ContextCursor::move_on(std::uint64_t row) {
    changed_ = order_;
    advance(order_ - 2, row);
    spell();
}

void ContextCursor::spell() {
    text_.resize(at_[changed_].letters);
    for (std::size_t k = changed_; k < at_.size(); ++k) {
        At& at = at_[k];
        at.letters = text_.size();
        text_ += names_[at.word[at.row - at.held_from]];
        text_ += ' ';
    }
    is_left_out_ = std::any_of(at_.begin(), at_.end(),
                               [&](const At& at) { return at.word[at.row - at.held_from] == left_out_; });
}

}  // namespace chainrule
