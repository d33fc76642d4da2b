#include "arpa/writer.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "arpa/cursor.hpp"
#include "arpa/numbers.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kRowsAtOnce = std::size_t{1} << 15;
constexpr std::size_t kChunksPerThread = 4;

// Some rows of one order, and their lines.
struct Chunk {
    std::uint64_t from = 0;
    std::size_t count = 0;
    std::uint64_t lines = 0;
    std::vector<char> text;
    std::size_t letters = 0;  // of the text that are used
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
    if (!is_known) throw Failure("the model's tables have words without a name");
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
        const std::size_t most = 2 * kLongestNumber + 3 + context.size() + name.size();
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

// All rows of order n in turn, a few chunks at a time.
template <class Use>
void Writer::for_chunks(std::size_t n, bool is_counted_only, const Use& use) {
    const std::uint64_t size = rows_.size(n);
    chunks_.resize(threads_ * kChunksPerThread);
    for (std::uint64_t from = 0; from < size;) {
        std::size_t made = 0;
        for (; made < chunks_.size() && from < size; ++made) {
            chunks_[made].from = from;
            chunks_[made].count = static_cast<std::size_t>(std::min<std::uint64_t>(kRowsAtOnce, size - from));
            from += chunks_[made].count;
        }
        std::atomic<std::size_t> next = 0;
        in_parallel(std::min(threads_, made), [&](std::size_t) {
            for (std::size_t i = next++; i < made; i = next++) fill(n, is_counted_only, chunks_[i]);
        });
        for (std::size_t i = 0; i < made; ++i) use(chunks_[i]);
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
