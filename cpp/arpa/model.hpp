// What an ARPA file holds once it is read, and what is said where it cannot be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

struct ArpaModel {
    // By number: the unknown word, the others as the file lists them, <s>, </s>. The first and the last two
    // are there whether the file lists them or not.
    std::vector<std::string> names;
    std::vector<TableLevel> levels;
    bool has_unknown = false;  // false: the unknown word has probability 0
    bool has_end = false;      // false: no line can end

    ArpaModel() = default;
    ArpaModel(ArpaModel&&) = default;  // and no copies
    ArpaModel& operator=(ArpaModel&&) = default;

    ModelFacts facts() const {
        ModelFacts made;
        made.vocabulary = static_cast<std::uint32_t>(names.size());
        made.begin = made.vocabulary - 2;
        made.end = made.vocabulary - 1;
        made.unknown = 0;
        made.is_closed = !has_unknown;
        return made;
    }
};

// Line 0: the file as a whole. `shown` are bytes of the file, of any kind; whoever shows the message makes
// them fit to be read.
struct ArpaFault : Failure {
    ArpaFault(std::uint64_t line, const std::string& before, const std::string& shown = {},
              const std::string& after = {})
        : Failure((line ? "line " + std::to_string(line) + ": " : "") + before + shown + after),
          line(line),
          before(before),
          shown(shown),
          after(after) {}

    std::uint64_t line;
    std::string before, shown, after;
};

}  // namespace chainrule
