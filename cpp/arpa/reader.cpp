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

constexpr std::size_t kMaxLine = std::size_t{1} << 20;  // bytes

// Strips white space; throws if the line is too long or contains a NUL byte. `line` has no line terminator.
std::string_view checked_line(std::string_view line, std::uint64_t number);

class ArpaLines {
  public:
    explicit ArpaLines(NextBlock next) : next_block_(std::move(next)) {}

    // Reads the next line; false at the end of the file.
    bool next(std::string_view& line);
    // Number of the last line read, from 1.
    std::uint64_t number() const { return number_; }

    // The following whole lines, about `wanted` bytes; empty at the end of the file.
    std::string_view window(std::size_t expected);
    // Marks bytes and lines of the window as read.
    void skip(std::size_t bytes, std::uint64_t lines) {
        at_ += bytes;
        number_ += lines;
    }

  private:
    void fill(std::size_t expected);

    NextBlock next_block_;
    std::string held_;
    std::size_t at_ = 0;  // bytes already consumed
    bool is_end_ = false;
    std::uint64_t number_ = 0;
};

// Number of n-grams of an order according to the header, and the line that states it.
struct ArpaCount {
    std::uint64_t count, line;
};

struct ArpaHeader {
    std::vector<ArpaCount> claims;  // [k] is of order k + 1
    std::string section_line;       // the line after the header: \1-grams:
};

ArpaHeader read_arpa_header(ArpaLines& lines);

// Entries up to the first line that begins with a backslash, or to the end of the piece. Lines and entries
// count from the start of the piece.
struct ParsedPiece {
    std::vector<ArpaEntry> listed;
    std::vector<std::uint32_t> orphan_ids;
    std::vector<LineRun> runs;
    std::size_t bytes = 0;      // that were read
    std::uint64_t lines = 0;    // that were read
    bool ends_section = false;  // the next line starts with a backslash
    std::optional<ArpaParseError> error;
    // First line with each fault, 0 if none; the reader of the whole order decides which to report.
    std::uint64_t wrong_probability = 0, wrong_backoff = 0, some_backoff = 0;
};

// Parses entries of order n. At order 1 words are added to `words`, and `word` is their number there; above,
// `word` is an id, and contexts are found through `indexes` ([k] is order k + 2) of the orders below.
class EntryParser {
  public:
    EntryParser(std::size_t order, ArpaWords& words, const std::vector<RowIndex>& indexes)
        : order_(order), words_(words), indexes_(indexes) {}

    // `first_line` is the line number of the first line of the piece.
    ParsedPiece parse(std::string_view text, std::uint64_t first_line);

  private:
    static constexpr std::size_t kBatch = 64;  // contexts looked up per batch

    void read_entry(std::string_view line, std::uint64_t number, ParsedPiece& into);
    std::uint32_t number_of(std::string_view word, std::size_t slot_index);
    void find_contexts(ParsedPiece& into);

    std::size_t order_;
    ArpaWords& words_;
    const std::vector<RowIndex>& indexes_;
    std::vector<std::string_view> fields_;
    std::vector<std::string_view> last_words_;  // words of the previous entry, cached with their ids
    std::vector<std::uint32_t> last_ids_;
    std::vector<std::uint32_t> ids_;  // ids of the entries waiting for a context lookup, n per entry
    std::vector<std::uint32_t> rows_;
    std::vector<bool> is_same_;  // same context as the previous entry
};

constexpr std::size_t kLittle = std::size_t{1} << 16;

ArpaParseError too_long(std::uint64_t number) {
    return {number, "longer than " + std::to_string(kMaxLine) + " bytes; this is not an ARPA file"};
}

std::string_view checked_line(std::string_view line, std::uint64_t number) {
    if (line.size() > kMaxLine) throw too_long(number);
    if (!line.empty() && std::memchr(line.data(), 0, line.size()))
        throw ArpaParseError(number, "contains a NUL byte; an ARPA file is UTF-8 text");
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r'))
        line.remove_suffix(1);
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t' || line.front() == '\r'))
        line.remove_prefix(1);
    return line;
}

void ArpaLines::fill(std::size_t expected) {
    if (held_.size() - at_ >= expected || is_end_) return;
    held_.erase(0, at_);
    at_ = 0;
    while (held_.size() < expected && !is_end_) {
        const std::string_view block = next_block_();
        is_end_ = block.empty();
        held_.append(block);
    }
}

std::string_view ArpaLines::window(std::size_t expected) {
    for (;; expected = kMaxLine + kLittle) {
        fill(expected);
        const std::string_view all = std::string_view(held_).substr(at_);
        if (is_end_) return all;
        const std::size_t end = all.rfind('\n');
        if (end != std::string_view::npos) return all.substr(0, end + 1);
        if (all.size() > kMaxLine) throw too_long(number_ + 1);
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

// Parses at most `most` digits.
std::optional<std::uint64_t> take_number(std::string_view& text, std::size_t most) {
    std::uint64_t value = 0;
    std::size_t digits = 0;
    for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
        if (digits == most) return std::nullopt;
        value = value * 10 + static_cast<std::uint64_t>(text[digits] - '0');
    }
    if (digits == 0) return std::nullopt;
    text.remove_prefix(digits);
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

std::uint64_t read_count(std::string_view line, std::size_t n, std::uint64_t number) {
    const auto parsed = count_of(line);
    if (!parsed)
        throw ArpaParseError(number, "", std::string(line),
                             " is not a count; expected 'ngram " + std::to_string(n) + "=COUNT'");
    if (parsed->order != n)
        throw ArpaParseError(number, "counts order " + std::to_string(parsed->order) + " where order " +
                                         std::to_string(n) + " comes next");
    if (n > kMaxArpaOrder)
        throw ArpaParseError(number, "order " + std::to_string(n) + " is above " +
                                         std::to_string(kMaxArpaOrder) + ", the highest supported order");
    return parsed->count;
}

ArpaHeader read_arpa_header(ArpaLines& lines) {
    std::string_view line;
    do {
        if (lines.next(line)) continue;
        const std::string what = lines.number()
                                     ? "has no \\data\\ in its " + std::to_string(lines.number()) + " lines"
                                     : "is empty";
        throw ArpaParseError(0, what + "; it is not an ARPA file");
    } while (line != "\\data\\");
    ArpaHeader header;
    while (lines.next(line)) {
        if (line.starts_with('\\')) {
            if (header.claims.empty())
                throw ArpaParseError(lines.number(),
                                     "the header counts no n-grams; expected 'ngram 1=COUNT'");
            header.section_line = line;
            return header;
        }
        if (line.empty()) continue;
        const std::uint64_t count = read_count(line, header.claims.size() + 1, lines.number());
        header.claims.push_back({count, lines.number()});
    }
    throw ArpaParseError(lines.number(), "the file ends in its header, without \\end\\; it was cut short");
}

constexpr double kRounding = 1e-6;  // largest positive log10 probability that is accepted as a rounded 1

bool is_blank(char c) { return c == ' ' || c == '\t'; }

// Splits a stripped line into fields.
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

// The error of an entry that could not be parsed.
ArpaParseError explained(const std::vector<std::string_view>& fields, std::size_t n, std::uint64_t number) {
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

std::uint32_t EntryParser::number_of(std::string_view word, std::size_t slot_index) {
    if (order_ == 1) return utf8_fault(word) ? ArpaWords::kNone : words_.list(word);
    if (word == last_words_[slot_index]) return last_ids_[slot_index];
    const std::uint32_t id = words_.id(word);
    last_words_[slot_index] = word;
    last_ids_[slot_index] = id;
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
        const auto for_each_key = [&](std::size_t k, const auto& use) {
            for (std::size_t i = 0; i < count; ++i) {
                if (rows_[i] != RowIndex::kNone) use(i, RowIndex::key(rows_[i], ids_[i * n + k]));
            }
        };
        for (std::size_t k = 1; k + 1 < n; ++k) {
            const RowIndex& index = indexes_[k - 1];
            for_each_key(k, [&](std::size_t, std::uint64_t key) { index.prefetch_slot(key); });
            for_each_key(k, [&](std::size_t, std::uint64_t key) { index.prefetch_key(key); });
            for_each_key(k, [&](std::size_t i, std::uint64_t key) { rows_[i] = index.find(key); });
        }
        ArpaEntry* const listed = into.listed.data() + into.listed.size() - count;
        for (std::size_t i = 0; i < count; ++i) {
            if (is_same_[i]) rows_[i] = rows_[i - 1];
            listed[i].context = rows_[i];
            if (rows_[i] != RowIndex::kNone) continue;
            listed[i].context = ArpaEntry::kOrphan;
            listed[i].word = static_cast<std::uint32_t>(into.orphan_ids.size() / n);
            into.orphan_ids.insert(into.orphan_ids.end(), ids_.begin() + static_cast<std::ptrdiff_t>(i * n),
                                   ids_.begin() + static_cast<std::ptrdiff_t>((i + 1) * n));
        }
    }
    ids_.clear();
    is_same_.clear();
}

ParsedPiece EntryParser::parse(std::string_view text, std::uint64_t first_line) {
    ParsedPiece result;
    ids_.clear();
    is_same_.clear();
    last_words_.assign(order_, {});
    last_ids_.assign(order_, ArpaWords::kNone);
    try {
        while (result.bytes < text.size()) {
            const std::string_view rest = text.substr(result.bytes);
            const std::size_t end = std::min(rest.find('\n'), rest.size());
            const std::uint64_t number = first_line + result.lines;
            const std::string_view line = checked_line(rest.substr(0, end), number);
            if (line.starts_with('\\')) {
                result.ends_section = true;
                break;
            }
            result.bytes += std::min(end + 1, rest.size());
            ++result.lines;
            if (line.empty()) continue;
            const std::uint64_t entry = result.listed.size();
            if (result.runs.empty() || number - entry != result.runs.back().line - result.runs.back().entry)
                result.runs.push_back({entry, number});
            read_entry(line, number, result);
        }
        find_contexts(result);
    } catch (const ArpaParseError& error) {
        result.error = error;
    }
    return result;
}

constexpr std::size_t kPiece = std::size_t{1} << 18;  // bytes read by a thread at a time
constexpr std::size_t kPiecesPerThread = 4;           // per synchronisation of the threads

// Splits whole lines into at most `most` pieces: their offsets, and the end.
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
    // First line of an order with each fault, 0 if none.
    struct EntryFaults {
        std::uint64_t probability = 0, backoff = 0, some_backoff = 0;
    };

    ArpaOrder read_order(std::size_t n, const ArpaCount& claim, bool is_top);
    bool read_window(std::string_view window, std::size_t n, ArpaOrder& into, EntryFaults& faults);
    void append(ParsedPiece piece, std::size_t n, ArpaOrder& into, EntryFaults& faults);
    void check(const ArpaOrder& listed, std::size_t n, const ArpaCount& claim, const EntryFaults& faults,
               bool is_top) const;
    void build(ArpaOrder& listed, std::size_t n, bool is_top);

    ArpaLines lines_;
    std::size_t threads_;
    const ArpaProgress& progress_;
    ArpaWords words_;
    std::vector<RowIndex> indexes_;     // [k] is of order k + 2
    std::vector<TableLevel> levels_;    // [k] is of order k + 1
    std::vector<OrphanOrder> orphans_;  // [k] is of order k + 1
    std::string section_line_;
};

ArpaModel Reader::read() {
    ArpaHeader header = read_arpa_header(lines_);
    section_line_ = std::move(header.section_line);
    for (std::size_t n = 1; n <= header.claims.size(); ++n) {
        const bool is_top = n == header.claims.size();
        const std::string expected = std::string("\\").append(grams(n)).append(":");
        if (section_line_ != expected)
            throw ArpaParseError(lines_.number(), "expected " + expected + " but found ", section_line_);
        ArpaOrder listed = read_order(n, header.claims[n - 1], is_top);
        build(listed, n, is_top);
    }
    if (section_line_ != "\\end\\")
        throw ArpaParseError(lines_.number(), "expected \\end\\ but found ", section_line_);
    if (words_.is_empty()) throw ArpaParseError(lines_.number(), "the file lists no words");
    progress_(0, 0, 0);
    indexes_.clear();
    insert_orphans(levels_, orphans_, words_.begin());
    ArpaModel result;
    result.has_unknown = words_.has_unknown();
    result.has_end = words_.has_end();
    result.names = words_.take_names();
    result.levels = std::move(levels_);
    return result;
}

ArpaOrder Reader::read_order(std::size_t n, const ArpaCount& claim, bool is_top) {
    ArpaOrder listed;
    EntryFaults faults;
    for (;;) {
        const std::string_view window = lines_.window(kPiece * kPiecesPerThread * threads_);
        if (window.empty())
            throw ArpaParseError(lines_.number(),
                                 "the file ends in its " + grams(n) + ", without \\end\\; it was cut short");
        if (read_window(window, n, listed, faults)) break;
        progress_(n, listed.size, claim.count);
    }
    std::string_view line;
    lines_.next(line);
    section_line_ = line;
    check(listed, n, claim, faults, is_top);
    progress_(n, listed.size, claim.count);
    return listed;
}

// Returns true if the next line begins with a backslash.
bool Reader::read_window(std::string_view window, std::size_t n, ArpaOrder& into, EntryFaults& faults) {
    if (n == 1) {  // sequential: words are numbered in order
        ParsedPiece piece = EntryParser(n, words_, indexes_).parse(window, lines_.number() + 1);
        const bool ends_section = piece.ends_section;
        append(std::move(piece), n, into, faults);
        return ends_section;
    }
    const std::vector<std::size_t> begins = pieces_of(window, kPiecesPerThread * threads_);
    std::vector<ParsedPiece> pieces(begins.size() - 1);
    std::atomic<std::size_t> next = 0, last = pieces.size();  // pieces after a section mark are discarded
    parallel_for(std::min(threads_, pieces.size()), [&](std::size_t) {
        EntryParser parser(n, words_, indexes_);
        for (std::size_t i = next++; i < pieces.size() && i <= last; i = next++) {
            pieces[i] = parser.parse(window.substr(begins[i], begins[i + 1] - begins[i]), 1);
            if (pieces[i].ends_section || pieces[i].error) last = std::min(last.load(), i);
        }
    });
    for (ParsedPiece& piece : pieces) {
        const bool ends_section = piece.ends_section;
        append(std::move(piece), n, into, faults);
        if (ends_section) return true;
    }
    return false;
}

// Line numbers of a piece count from 1 at order 2 and above.
void Reader::append(ParsedPiece piece, std::size_t n, ArpaOrder& into, EntryFaults& faults) {
    const std::uint64_t before = n == 1 ? 0 : lines_.number();
    if (piece.error)
        throw ArpaParseError(piece.error->line + before, piece.error->before, piece.error->shown,
                             piece.error->after);
    const auto note = [&](std::uint64_t& first, std::uint64_t line) {
        if (first == 0 && line) first = line + before;
    };
    note(faults.probability, piece.wrong_probability);
    note(faults.backoff, piece.wrong_backoff);
    note(faults.some_backoff, piece.some_backoff);
    for (const LineRun& run : piece.runs) {
        const LineRun moved{run.entry + into.size, run.line + before};
        if (into.runs.empty() || moved.line - moved.entry != into.runs.back().line - into.runs.back().entry)
            into.runs.push_back(moved);
    }
    if (!piece.orphan_ids.empty()) {
        const auto earlier = static_cast<std::uint32_t>(into.orphan_ids.size() / n);
        for (ArpaEntry& one : piece.listed) {
            if (one.context == ArpaEntry::kOrphan) one.word += earlier;
        }
        into.orphan_ids.insert(into.orphan_ids.end(), piece.orphan_ids.begin(), piece.orphan_ids.end());
    }
    into.size += piece.listed.size();
    if (!piece.listed.empty())
        into.pieces.emplace_back(piece.listed.begin(), piece.listed.end());  // shrinks to fit
    lines_.skip(piece.bytes, piece.lines);
}

void Reader::check(const ArpaOrder& listed, std::size_t n, const ArpaCount& claim, const EntryFaults& faults,
                   bool is_top) const {
    if (faults.probability)
        throw ArpaParseError(faults.probability, "the log-probability is not a number of 0 or less");
    if (faults.backoff)
        throw ArpaParseError(faults.backoff, "the back-off weight is not a finite number below 99");
    const std::string promise = "line " + std::to_string(claim.line) + " counts " +
                                std::to_string(claim.count) + " " + grams(n) + ", but ";
    if (listed.size > claim.count)
        throw ArpaParseError(listed.line_of(claim.count), promise + "here is one more");
    if (listed.size < claim.count)
        throw ArpaParseError(lines_.number(), promise + std::to_string(listed.size) +
                                                  " were listed by here; was the file cut short?");
    if (is_top && faults.some_backoff)
        throw ArpaParseError(faults.some_backoff, "a back-off weight in the highest order");
}

void Reader::build(ArpaOrder& listed, std::size_t n, bool is_top) {
    orphans_.push_back(take_orphans(listed, n));
    if (n == 1) {
        words_.settle();
        for (auto& piece : listed.pieces) {
            for (ArpaEntry& one : piece) one.word = words_.id_of_number(one.word);
        }
        levels_.push_back(unigrams_of(listed, words_.size(), is_top));
        return;
    }
    SortedOrder sorted = sort_entries(listed, levels_.back().size(), words_.begin(), is_top, threads_);
    levels_.push_back(std::move(sorted.level));
    if (!is_top) indexes_.emplace_back(std::move(sorted.keys), threads_);
}

}  // namespace

ArpaModel read_arpa(NextBlock next, std::size_t threads, const ArpaProgress& progress) {
    return Reader(std::move(next), std::max<std::size_t>(threads, 1), progress).read();
}

}  // namespace chainrule
