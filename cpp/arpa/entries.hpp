// The entries of one order of an ARPA file: a piece of its text -> what it lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "arpa/levels.hpp"
#include "arpa/model.hpp"
#include "arpa/words.hpp"

namespace chainrule {

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

}  // namespace chainrule
