#include "arpa/reader.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "arpa/entries.hpp"
#include "arpa/header.hpp"
#include "arpa/orphans.hpp"
#include "base/parallel.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kPiece = std::size_t{1} << 18;  // bytes that one thread reads at a time
constexpr std::size_t kPiecesPerThread = 4;           // before the others are waited for

// Where each of the pieces of these whole lines begins, and where the last ends.
std::vector<std::size_t> pieces_of(std::string_view window, std::size_t most) {
    std::vector<std::size_t> begins{0};
    const std::size_t step = std::max(window.size() / most + 1, kPiece / 4);
    while (begins.back() < window.size()) {
        const std::size_t end = window.find('\n', std::min(begins.back() + step, window.size()) - 1);
        begins.push_back(end == std::string_view::npos ? window.size() : end + 1);
    }
    return begins;
}

std::string grams(std::size_t n) { return std::to_string(n) + "-grams"; }

class Reader {
  public:
    Reader(NextBlock next, std::size_t threads, const ArpaProgress& progress)
        : lines_(std::move(next)), threads_(threads), progress_(progress) {}

    ArpaModel read();

  private:
    // The first line of an order with one of these, 0 where there is none.
    struct Wrong {
        std::uint64_t probability = 0, backoff = 0, some_backoff = 0;
    };

    ListedOrder read_order(std::size_t n, const ArpaClaim& claim, bool is_top);
    bool read_window(std::string_view window, std::size_t n, ListedOrder& into, Wrong& wrong);
    void append(ParsedPiece piece, std::size_t n, ListedOrder& into, Wrong& wrong);
    void check(const ListedOrder& listed, std::size_t n, const ArpaClaim& claim, const Wrong& wrong,
               bool is_top) const;
    void build(ListedOrder& listed, std::size_t n, bool is_top);

    ArpaLines lines_;
    std::size_t threads_;
    const ArpaProgress& progress_;
    ArpaWords words_;
    std::vector<RowIndex> indexes_;     // [k] is of order k + 2
    std::vector<TableLevel> levels_;    // [k] is of order k + 1
    std::vector<OrphanOrder> orphans_;  // [k] is of order k + 1
    std::string mark_;
};

ArpaModel Reader::read() {
    ArpaHeader header = read_arpa_header(lines_);
    mark_ = std::move(header.mark);
    for (std::size_t n = 1; n <= header.claims.size(); ++n) {
        const bool is_top = n == header.claims.size();
        const std::string wanted = std::string("\\").append(grams(n)).append(":");
        if (mark_ != wanted) throw ArpaFault(lines_.number(), "expected " + wanted + " but found ", mark_);
        ListedOrder listed = read_order(n, header.claims[n - 1], is_top);
        build(listed, n, is_top);
    }
    if (mark_ != "\\end\\") throw ArpaFault(lines_.number(), "expected \\end\\ but found ", mark_);
    if (words_.is_empty()) throw ArpaFault(lines_.number(), "the file lists no words");
    progress_(0, 0, 0);
    indexes_.clear();
    adopt_orphans(levels_, orphans_, words_.begin());
    ArpaModel made;
    made.has_unknown = words_.has_unknown();
    made.has_end = words_.has_end();
    made.names = words_.take_names();
    made.levels = std::move(levels_);
    return made;
}

ListedOrder Reader::read_order(std::size_t n, const ArpaClaim& claim, bool is_top) {
    ListedOrder listed;
    Wrong wrong;
    for (;;) {
        const std::string_view window = lines_.window(kPiece * kPiecesPerThread * threads_);
        if (window.empty())
            throw ArpaFault(lines_.number(),
                            "the file ends in its " + grams(n) + ", without \\end\\; it was cut short");
        if (read_window(window, n, listed, wrong)) break;
        progress_(n, listed.size, claim.count);
    }
    std::string_view line;
    lines_.next(line);
    mark_ = line;
    check(listed, n, claim, wrong, is_top);
    progress_(n, listed.size, claim.count);
    return listed;
}

// True where the line that comes next is a mark.
bool Reader::read_window(std::string_view window, std::size_t n, ListedOrder& into, Wrong& wrong) {
    if (n == 1) {  // numbers its words in turn
        ParsedPiece piece = EntryParser(n, words_, indexes_).parse(window, lines_.number() + 1);
        const bool has_mark = piece.has_mark;
        append(std::move(piece), n, into, wrong);
        return has_mark;
    }
    const std::vector<std::size_t> begins = pieces_of(window, kPiecesPerThread * threads_);
    std::vector<ParsedPiece> pieces(begins.size() - 1);
    std::atomic<std::size_t> next = 0, last = pieces.size();  // none after a mark is of use
    in_parallel(std::min(threads_, pieces.size()), [&](std::size_t) {
        EntryParser parser(n, words_, indexes_);
        for (std::size_t i = next++; i < pieces.size() && i <= last; i = next++) {
            pieces[i] = parser.parse(window.substr(begins[i], begins[i + 1] - begins[i]), 1);
            if (pieces[i].has_mark || pieces[i].fault) last = std::min(last.load(), i);
        }
    });
    for (ParsedPiece& piece : pieces) {
        const bool has_mark = piece.has_mark;
        append(std::move(piece), n, into, wrong);
        if (has_mark) return true;
    }
    return false;
}

// Lines of the piece count from 1 at order 2 and above.
void Reader::append(ParsedPiece piece, std::size_t n, ListedOrder& into, Wrong& wrong) {
    const std::uint64_t before = n == 1 ? 0 : lines_.number();
    if (piece.fault)
        throw ArpaFault(piece.fault->line + before, piece.fault->before, piece.fault->shown,
                        piece.fault->after);
    const auto note = [&](std::uint64_t& first, std::uint64_t line) {
        if (first == 0 && line) first = line + before;
    };
    note(wrong.probability, piece.wrong_probability);
    note(wrong.backoff, piece.wrong_backoff);
    note(wrong.some_backoff, piece.some_backoff);
    for (const LineRun& run : piece.runs) {
        const LineRun moved{run.entry + into.size, run.line + before};
        if (into.runs.empty() || moved.line - moved.entry != into.runs.back().line - into.runs.back().entry)
            into.runs.push_back(moved);
    }
    if (!piece.orphan_ids.empty()) {
        const auto earlier = static_cast<std::uint32_t>(into.orphan_ids.size() / n);
        for (Listed& one : piece.listed) {
            if (one.context == Listed::kOrphan) one.word += earlier;
        }
        into.orphan_ids.insert(into.orphan_ids.end(), piece.orphan_ids.begin(), piece.orphan_ids.end());
    }
    into.size += piece.listed.size();
    if (!piece.listed.empty()) into.pieces.emplace_back(piece.listed.begin(), piece.listed.end());  // to size
    lines_.skip(piece.bytes, piece.lines);
}

void Reader::check(const ListedOrder& listed, std::size_t n, const ArpaClaim& claim, const Wrong& wrong,
                   bool is_top) const {
    if (wrong.probability)
        throw ArpaFault(wrong.probability, "the log-probability is not a number of 0 or less");
    if (wrong.backoff) throw ArpaFault(wrong.backoff, "the back-off weight is not a finite number below 99");
    const std::string promise = "line " + std::to_string(claim.line) + " counts " +
                                std::to_string(claim.count) + " " + grams(n) + ", but ";
    if (listed.size > claim.count) throw ArpaFault(listed.line_of(claim.count), promise + "here is one more");
    if (listed.size < claim.count)
        throw ArpaFault(lines_.number(), promise + std::to_string(listed.size) +
                                             " were listed by here; was the file cut short?");
    if (is_top && wrong.some_backoff)
        throw ArpaFault(wrong.some_backoff, "a back-off weight in the highest order");
}

void Reader::build(ListedOrder& listed, std::size_t n, bool is_top) {
    orphans_.push_back(take_orphans(listed, n));
    if (n == 1) {
        words_.settle();
        for (auto& piece : listed.pieces) {
            for (Listed& one : piece) one.word = words_.id_of_number(one.word);
        }
        levels_.push_back(unigrams_of(listed, words_.size(), is_top));
        return;
    }
    SortedOrder sorted = sort_listed(listed, levels_.back().size(), words_.begin(), is_top, threads_);
    levels_.push_back(std::move(sorted.level));
    if (!is_top) indexes_.emplace_back(std::move(sorted.keys), threads_);
}

}  // namespace

ArpaModel read_arpa(NextBlock next, std::size_t threads, const ArpaProgress& progress) {
    return Reader(std::move(next), std::max<std::size_t>(threads, 1), progress).read();
}

}  // namespace chainrule
