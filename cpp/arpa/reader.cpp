// The lines of an ARPA file, from blocks of bytes as they come.
#include "arpa/reader.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arpa/builder.hpp"
#include "arpa/numbers.hpp"
#include "base/parallel.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kLongestLine = std::size_t{1} << 20;  // bytes

// A line without the blanks around it; refused where it is too long or holds a NUL byte. `line` has no line
// end.
std::string_view checked_line(std::string_view line, std::uint64_t number);

class ArpaLines {
  public:
    explicit ArpaLines(NextBlock next) : next_block_(std::move(next)) {}

    // The next line, checked; false at the end of the file.
    bool next(std::string_view& line);
    // The number of the last line that was read, from 1.
    std::uint64_t number() const { return number_; }

    // The lines that come next, whole, about `wanted` bytes of them; empty at the end of the file.
    std::string_view window(std::size_t wanted);
    // Of the window so many bytes, which are so many lines, were read.
    void skip(std::size_t bytes, std::uint64_t lines) {
        at_ += bytes;
        number_ += lines;
    }

  private:
    void fill(std::size_t wanted);

    NextBlock next_block_;
    std::string held_;
    std::size_t at_ = 0;  // bytes of it that were read
    bool is_end_ = false;
    std::uint64_t number_ = 0;
};

// The head of an ARPA file.

// How many n-grams of an order the header promises, and in which line.
struct ArpaClaim {
    std::uint64_t count, line;
};

struct ArpaHeader {
    std::vector<ArpaClaim> claims;  // [k] is of order k + 1
    std::string mark;               // the line that ended it: \1-grams:
};

ArpaHeader read_arpa_header(ArpaLines& lines);

// The entries of one order of an ARPA file: a piece of its text -> what it lists.

// Up to the first line that begins with a backslash, or to the end of the piece. Lines and entries count from
// the piece's first.
struct ParsedPiece {
    std::vector<Listed> listed;
    std::vector<std::uint32_t> orphan_ids;
    std::vector<LineRun> runs;
    std::size_t bytes = 0;    // that were read
    std::uint64_t lines = 0;  // that were read
    bool has_mark = false;    // the next line is one
    std::optional<ArpaFault> fault;
    // The first line with one of these, 0 where there is none; whoever has the whole order says which
    // matters.
    std::uint64_t wrong_probability = 0, wrong_backoff = 0, some_backoff = 0;
};

// Entries of order n. At order 1 words are listed in `words`, and `word` is a number of it; above, `word` is
// an id, and contexts are found through `indexes` ([k] is of order k + 2), all of the orders below.
class EntryParser {
  public:
    EntryParser(std::size_t order, ArpaWords& words, const std::vector<RowIndex>& indexes)
        : order_(order), words_(words), indexes_(indexes) {}

    // `first_line` is the number of the piece's first line in the file.
    ParsedPiece parse(std::string_view text, std::uint64_t first_line);

  private:
    static constexpr std::size_t kBatch = 64;  // contexts that are looked for at a time

    void read_entry(std::string_view line, std::uint64_t number, ParsedPiece& into);
    std::uint32_t number_of(std::string_view word, std::size_t place);
    void find_contexts(ParsedPiece& into);

    std::size_t order_;
    ArpaWords& words_;
    const std::vector<RowIndex>& indexes_;
    std::vector<std::string_view> fields_;
    std::vector<std::string_view> last_words_;  // of the entry before, and their ids: many stay the same
    std::vector<std::uint32_t> last_ids_;
    std::vector<std::uint32_t> ids_;  // of the entries whose contexts are still to be found, n by n
    std::vector<std::uint32_t> rows_;
    std::vector<bool> is_same_;  // context as the entry before
};

constexpr std::size_t kLittle = std::size_t{1} << 16;

ArpaFault too_long(std::uint64_t number) {
    return {number, "longer than " + std::to_string(kLongestLine) + " bytes; this is not an ARPA file"};
}

std::string_view checked_line(std::string_view line, std::uint64_t number) {
    if (line.size() > kLongestLine) throw too_long(number);
    if (!line.empty() && std::memchr(line.data(), 0, line.size()))
        throw ArpaFault(number, "holds a NUL byte; an ARPA file is UTF-8 text");
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r'))
        line.remove_suffix(1);
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t' || line.front() == '\r'))
        line.remove_prefix(1);
    return line;
}

void ArpaLines::fill(std::size_t wanted) {
    if (held_.size() - at_ >= wanted || is_end_) return;
    held_.erase(0, at_);
    at_ = 0;
    while (held_.size() < wanted && !is_end_) {
        const std::string_view block = next_block_();
        is_end_ = block.empty();
        held_.append(block);
    }
}

std::string_view ArpaLines::window(std::size_t wanted) {
    for (;; wanted = kLongestLine + kLittle) {
        fill(wanted);
        const std::string_view all = std::string_view(held_).substr(at_);
        if (is_end_) return all;
        const std::size_t end = all.rfind('\n');
        if (end != std::string_view::npos) return all.substr(0, end + 1);
        if (all.size() > kLongestLine) throw too_long(number_ + 1);
    }
}

bool ArpaLines::next(std::string_view& line) {
    std::string_view all = std::string_view(held_).substr(at_);
    if (all.find('\n') == std::string_view::npos) all = window(kLittle);
    if (all.empty()) return false;
    const std::size_t end = std::min(all.find('\n'), all.size());
    skip(std::min(end + 1, all.size()), 1);
    line = all.substr(0, end);
    if (number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);  // a byte order mark
    line = checked_line(line, number_);
    return true;
}

void skip_blanks(std::string_view& text) {
    while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
}

// Takes at most `most` digits.
std::optional<std::uint64_t> take_number(std::string_view& text, std::size_t most) {
    std::uint64_t value = 0;
    std::size_t taken = 0;
    for (; taken < text.size() && text[taken] >= '0' && text[taken] <= '9'; ++taken) {
        if (taken == most) return std::nullopt;
        value = value * 10 + static_cast<std::uint64_t>(text[taken] - '0');
    }
    if (taken == 0) return std::nullopt;
    text.remove_prefix(taken);
    return value;
}

struct Count {
    std::uint64_t order, count;
};

// ngram ORDER=COUNT
std::optional<Count> count_of(std::string_view line) {
    if (!line.starts_with("ngram")) return std::nullopt;
    line.remove_prefix(5);
    if (!line.starts_with(' ') && !line.starts_with('\t')) return std::nullopt;
    skip_blanks(line);
    const auto order = take_number(line, 9);
    skip_blanks(line);
    if (!order || !line.starts_with('=')) return std::nullopt;
    line.remove_prefix(1);
    skip_blanks(line);
    const auto count = take_number(line, 18);
    if (!count || !line.empty()) return std::nullopt;
    return Count{*order, *count};
}

std::uint64_t read_claim(std::string_view line, std::size_t n, std::uint64_t number) {
    const auto found = count_of(line);
    if (!found)
        throw ArpaFault(number, "", std::string(line),
                        " is not a count; expected 'ngram " + std::to_string(n) + "=COUNT'");
    if (found->order != n)
        throw ArpaFault(number, "counts order " + std::to_string(found->order) + " where order " +
                                    std::to_string(n) + " comes next");
    if (n > kHighestOrder)
        throw ArpaFault(number, "order " + std::to_string(n) + " is above " + std::to_string(kHighestOrder) +
                                    ", the highest there is");
    return found->count;
}

ArpaHeader read_arpa_header(ArpaLines& lines) {
    std::string_view line;
    do {
        if (lines.next(line)) continue;
        const std::string what = lines.number()
                                     ? "has no \\data\\ in its " + std::to_string(lines.number()) + " lines"
                                     : "is empty";
        throw ArpaFault(0, what + "; it is not an ARPA file");
    } while (line != "\\data\\");
    ArpaHeader header;
    while (lines.next(line)) {
        if (line.starts_with('\\')) {
            if (header.claims.empty())
                throw ArpaFault(lines.number(), "the header counts no n-grams; expected 'ngram 1=COUNT'");
            header.mark = line;
            return header;
        }
        if (line.empty()) continue;
        const std::uint64_t count = read_claim(line, header.claims.size() + 1, lines.number());
        header.claims.push_back({count, lines.number()});
    }
    throw ArpaFault(lines.number(), "the file ends in its header, without \\end\\; it was cut short");
}

constexpr double kRounding = 1e-6;  // how far above 0 a log10 probability may stand for a 1 that was rounded

bool is_blank(char c) { return c == ' ' || c == '\t'; }

// The fields of a line without blanks around it.
void cut(std::string_view line, std::vector<std::string_view>& fields) {
    fields.clear();
    const char* at = line.data();
    const char* const end = at + line.size();
    while (at < end) {
        const char* const begin = at;
        while (at < end && !is_blank(*at)) ++at;
        fields.emplace_back(begin, static_cast<std::size_t>(at - begin));
        while (at < end && is_blank(*at)) ++at;
    }
}

std::string joined(const std::vector<std::string_view>& fields, std::size_t from, std::size_t to) {
    std::string text;
    for (std::size_t i = from; i < to; ++i) {
        if (i > from) text += ' ';
        text += fields[i];
    }
    return text;
}

// What is wrong with an entry that could not be read.
ArpaFault explained(const std::vector<std::string_view>& fields, std::size_t n, std::uint64_t number) {
    if (fields.size() < n + 1 || fields.size() > n + 2) {
        return {number, std::to_string(fields.size()) + " fields; an entry here has a log-probability, " +
                            std::to_string(n) + " words and at most a back-off weight"};
    }
    double ignored = 0;
    if (!read_number(fields[0], ignored)) return {number, "", std::string(fields[0]), " is not a number"};
    if (fields.size() == n + 2 && !read_number(fields[n + 1], ignored))
        return {number, "", std::string(fields[n + 1]), " is not a number"};
    if (const char* const reason = utf8_fault(joined(fields, 0, fields.size())))
        return {number, std::string("not UTF-8 (") + reason + "); convert the file to UTF-8"};
    return {number, "a word of ", joined(fields, 1, n + 1), " is not among the 1-grams"};
}

void note(std::uint64_t& first, std::uint64_t number) {
    if (first == 0) first = number;
}

std::uint32_t EntryParser::number_of(std::string_view word, std::size_t place) {
    if (order_ == 1) return utf8_fault(word) ? ArpaWords::kNone : words_.list(word);
    if (word == last_words_[place]) return last_ids_[place];
    const std::uint32_t id = words_.id(word);
    last_words_[place] = word;
    last_ids_[place] = id;
    return id;
}

void EntryParser::read_entry(std::string_view line, std::uint64_t number, ParsedPiece& into) {
    const std::size_t n = order_;
    cut(line, fields_);
    double log_prob = 0, log_backoff = 0;
    if (fields_.size() < n + 1 || fields_.size() > n + 2 || !read_number(fields_[0], log_prob) ||
        (fields_.size() == n + 2 && !read_number(fields_[n + 1], log_backoff)))
        throw explained(fields_, n, number);
    bool is_same = !is_same_.empty() && n > 1;
    for (std::size_t k = 0; k < n; ++k) {
        const std::uint32_t id = number_of(fields_[k + 1], k);
        if (id == ArpaWords::kNone) throw explained(fields_, n, number);
        if (k + 1 < n && is_same) is_same = ids_[ids_.size() - n] == id;
        ids_.push_back(id);
    }
    is_same_.push_back(is_same);
    if (!(log_prob <= kRounding)) note(into.wrong_probability, number);
    if (!(log_backoff < -kLog10Zero)) note(into.wrong_backoff, number);
    const double weight = natural_of(log_backoff);
    if (weight != 0) note(into.some_backoff, number);
    into.listed.push_back({0, ids_.back(), static_cast<float>(natural_of(std::min(log_prob, 0.0))),
                           static_cast<float>(weight)});
    if (is_same_.size() == kBatch) find_contexts(into);
}

void EntryParser::find_contexts(ParsedPiece& into) {
    const std::size_t n = order_, count = is_same_.size();
    if (n > 1) {
        rows_.resize(count);
        for (std::size_t i = 0; i < count; ++i) rows_[i] = is_same_[i] ? RowIndex::kNone : ids_[i * n];
        const auto each = [&](std::size_t k, const auto& use) {
            for (std::size_t i = 0; i < count; ++i) {
                if (rows_[i] != RowIndex::kNone) use(i, RowIndex::key(rows_[i], ids_[i * n + k]));
            }
        };
        for (std::size_t k = 1; k + 1 < n; ++k) {
            const RowIndex& index = indexes_[k - 1];
            each(k, [&](std::size_t, std::uint64_t key) { index.prefetch_slot(key); });
            each(k, [&](std::size_t, std::uint64_t key) { index.prefetch_key(key); });
            each(k, [&](std::size_t i, std::uint64_t key) { rows_[i] = index.find(key); });
        }
        Listed* const listed = into.listed.data() + into.listed.size() - count;
        for (std::size_t i = 0; i < count; ++i) {
            if (is_same_[i]) rows_[i] = rows_[i - 1];
            listed[i].context = rows_[i];
            if (rows_[i] != RowIndex::kNone) continue;
            listed[i].context = Listed::kOrphan;
            listed[i].word = static_cast<std::uint32_t>(into.orphan_ids.size() / n);
            into.orphan_ids.insert(into.orphan_ids.end(), ids_.begin() + static_cast<std::ptrdiff_t>(i * n),
                                   ids_.begin() + static_cast<std::ptrdiff_t>((i + 1) * n));
        }
    }
    ids_.clear();
    is_same_.clear();
}

ParsedPiece EntryParser::parse(std::string_view text, std::uint64_t first_line) {
    ParsedPiece made;
    ids_.clear();
    is_same_.clear();
    last_words_.assign(order_, {});
    last_ids_.assign(order_, ArpaWords::kNone);
    try {
        while (made.bytes < text.size()) {
            const std::string_view rest = text.substr(made.bytes);
            const std::size_t end = std::min(rest.find('\n'), rest.size());
            const std::uint64_t number = first_line + made.lines;
            const std::string_view line = checked_line(rest.substr(0, end), number);
            if (line.starts_with('\\')) {
                made.has_mark = true;
                break;
            }
            made.bytes += std::min(end + 1, rest.size());
            ++made.lines;
            if (line.empty()) continue;
            const std::uint64_t entry = made.listed.size();
            if (made.runs.empty() || number - entry != made.runs.back().line - made.runs.back().entry)
                made.runs.push_back({entry, number});
            read_entry(line, number, made);
        }
        find_contexts(made);
    } catch (const ArpaFault& fault) {
        made.fault = fault;
    }
    return made;
}

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
