#include "arpa/entries.hpp"

#include <algorithm>
#include <cstring>

#include "arpa/lines.hpp"
#include "arpa/numbers.hpp"

namespace chainrule {

namespace {

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

}  // namespace

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

}  // namespace chainrule
