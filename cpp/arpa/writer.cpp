#include "arpa/writer.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "arpa/numbers.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

namespace {

// Iterates over contexts in row order and builds their text incrementally; holds only a few rows of each
// order in memory.
class ContextCursor {
  public:
    // Starts at the context of row `row` of order `order`.
    ContextCursor(const Rows& rows, const std::vector<std::string>& names, std::uint32_t left_out,
                  std::size_t order, std::uint64_t row);

    // Moves to the context of `row`; rows must not decrease.
    void move_to(std::uint64_t row) {
        if (order_ > 1 && at_.back().end <= row) move_on(row);
    }
    const std::string& text() const { return text_; }  // words of the context, each followed by a space
    bool is_left_out() const { return is_left_out_; }  // the context contains the excluded word

  private:
    // Current row of one order.
    struct At {
        std::uint64_t row = 0, end = 0;  // end of its continuations one order up
        std::size_t letters = 0;         // bytes of the text before this word
        std::uint64_t held_from = 0;
        std::vector<std::uint32_t> word,
            first;  // buffered rows from held_from on; `first` has one more entry
    };

    void move_on(std::uint64_t row);
    void advance(std::size_t k, std::uint64_t until);
    void hold(std::size_t k);
    void spell();
    std::uint64_t parent(std::size_t n, std::uint64_t row) const;

    const Rows& rows_;
    const std::vector<std::string>& names_;
    std::uint32_t left_out_;
    std::size_t order_;
    std::vector<At> at_;       // [k] is of order k + 1; up to order − 1
    std::size_t changed_ = 0;  // index of the first word that differs from the text
    std::string text_;
    bool is_left_out_ = false;
};

constexpr std::uint64_t kHeld = 4096;  // rows

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

// The context (row of order n) of a row of the next order: the last one whose extensions do not begin after
// it.
std::uint64_t ContextCursor::parent(std::size_t n, std::uint64_t row) const {
    std::uint64_t from = 0, to = rows_.size(n);  // the context is in [from, to)
    while (to - from > 1) {
        const std::uint64_t middle = from + (to - from) / 2;
        std::uint32_t first[2];
        rows_.read(n, middle, 1, nullptr, nullptr, nullptr, first);
        (first[0] <= row ? from : to) = middle;
    }
    return from;
}

// Reads a block of rows starting at the current row of order k + 1.
void ContextCursor::hold(std::size_t k) {
    At& at = at_[k];
    const std::uint64_t size = rows_.size(k + 1);
    if (at.row >= size) throw ModelFileError("the model's tables do not fit together: a row has no context");
    const auto count = static_cast<std::size_t>(std::min(kHeld, size - at.row));
    at.held_from = at.row;
    at.word.resize(count);
    at.first.resize(count + 1);
    rows_.read(k + 1, at.row, count, at.word.data(), nullptr, nullptr, at.first.data());
    at.end = at.first[1];
    if (*std::max_element(at.word.begin(), at.word.end()) >= names_.size())
        throw ModelFileError("the model's tables have words without a name");
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

constexpr std::size_t kRowsAtOnce = std::size_t{1} << 15;
constexpr std::size_t kChunksPerThread = 4;

// A chunk of rows of one order and their formatted lines.
struct Chunk {
    std::uint64_t from = 0;
    std::size_t count = 0;
    std::uint64_t lines = 0;
    std::vector<char> text;
    std::size_t letters = 0;  // used bytes of the text
    std::vector<std::uint32_t> word;
    std::vector<float> log_prob, log_backoff;
};

class Writer {
  public:
    Writer(const Rows& rows, const std::vector<std::string>& names, const ArpaOutput& out)
        : rows_(rows), names_(names), out_(out), threads_(std::max<std::size_t>(out.threads, 1)) {}

    void write();

  private:
    std::uint64_t count_lines(std::size_t n);
    template <class Use>
    void for_chunks(std::size_t n, bool is_counted_only, const Use& use);
    void fill(std::size_t n, bool is_counted_only, Chunk& chunk) const;
    void check_words(const Chunk& chunk) const;

    const Rows& rows_;
    const std::vector<std::string>& names_;
    const ArpaOutput& out_;
    std::size_t threads_;
    std::vector<Chunk> chunks_;
};

void Writer::check_words(const Chunk& chunk) const {
    const bool is_known = std::all_of(chunk.word.begin(), chunk.word.end(),
                                      [&](std::uint32_t word) { return word < names_.size(); });
    if (!is_known) throw ModelFileError("the model's tables have words without a name");
}

void Writer::fill(std::size_t n, bool is_counted_only, Chunk& chunk) const {
    const bool is_top = n == rows_.order(), always_weighted = n == 1 && !is_top;
    chunk.word.resize(chunk.count), chunk.log_prob.resize(chunk.count), chunk.log_backoff.resize(chunk.count);
    rows_.read(n, chunk.from, chunk.count, chunk.word.data(), chunk.log_prob.data(), chunk.log_backoff.data(),
               nullptr);
    check_words(chunk);
    chunk.lines = chunk.letters = 0;
    ContextCursor cursor(rows_, names_, out_.left_out, n, chunk.from);
    for (std::size_t i = 0; i < chunk.count; ++i) {
        cursor.move_to(chunk.from + i);
        if (chunk.word[i] == out_.left_out || cursor.is_left_out()) continue;
        ++chunk.lines;
        if (is_counted_only) continue;
        const std::string& context = cursor.text();
        const std::string& name = names_[chunk.word[i]];
        const std::size_t most = 2 * kMaxNumber + 3 + context.size() + name.size();
        if (chunk.text.size() - chunk.letters < most) chunk.text.resize(2 * chunk.text.size() + most);
        char* at = write_log10(std::min(chunk.log_prob[i], 0.0F), chunk.text.data() + chunk.letters);
        *at++ = '\t';
        at = std::copy(context.begin(), context.end(), at);
        at = std::copy(name.begin(), name.end(), at);
        if (always_weighted || (!is_top && chunk.log_backoff[i] != 0)) {
            *at++ = '\t';
            at = write_log10(chunk.log_backoff[i], at);
        }
        *at++ = '\n';
        chunk.letters = static_cast<std::size_t>(at - chunk.text.data());
    }
}

// Formats all rows of order n in chunks, in parallel, and passes the chunks to `use` in order.
template <class Use>
void Writer::for_chunks(std::size_t n, bool is_counted_only, const Use& use) {
    const std::uint64_t size = rows_.size(n);
    chunks_.resize(threads_ * kChunksPerThread);
    for (std::uint64_t from = 0; from < size;) {
        std::size_t result = 0;
        for (; result < chunks_.size() && from < size; ++result) {
            chunks_[result].from = from;
            chunks_[result].count =
                static_cast<std::size_t>(std::min<std::uint64_t>(kRowsAtOnce, size - from));
            from += chunks_[result].count;
        }
        std::atomic<std::size_t> next = 0;
        parallel_for(std::min(threads_, result), [&](std::size_t) {
            for (std::size_t i = next++; i < result; i = next++) fill(n, is_counted_only, chunks_[i]);
        });
        for (std::size_t i = 0; i < result; ++i) use(chunks_[i]);
    }
}

std::uint64_t Writer::count_lines(std::size_t n) {
    if (out_.left_out == 0xFFFFFFFF) return rows_.size(n);
    std::uint64_t lines = 0;
    for_chunks(n, true, [&](const Chunk& chunk) { lines += chunk.lines; });
    return lines;
}

void Writer::write() {
    const std::size_t order = rows_.order();
    std::vector<std::uint64_t> lines(order + 1);
    std::string header = "\\data\\\n";
    for (std::size_t n = 1; n <= order; ++n) {
        lines[n] = count_lines(n);
        header += "ngram " + std::to_string(n) + "=" + std::to_string(lines[n]) + "\n";
    }
    out_.write(header);
    for (std::size_t n = 1; n <= order; ++n) {
        out_.write("\n\\" + std::to_string(n) + "-grams:\n");
        std::uint64_t done = 0;
        out_.progress(n, done, lines[n]);
        for_chunks(n, false, [&](const Chunk& chunk) {
            out_.write({chunk.text.data(), chunk.letters});
            done += chunk.lines;
            if (done < lines[n]) out_.progress(n, done, lines[n]);
        });
        out_.progress(n, done, lines[n]);
    }
    out_.write("\n\\end\\\n");
}

}  // namespace

void write_arpa(const Rows& rows, const std::vector<std::string>& names, const ArpaOutput& out) {
    Writer(rows, names, out).write();
}

}  // namespace chainrule
