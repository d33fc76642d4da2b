// The text of JSON Lines records.
#pragma once

#include <string>
#include <string_view>

namespace chainrule {

// Appends the text in `column` of each record to `out`, with LF after each line of the text. `lines` is UTF-8
// with one object per line; blank lines are skipped. Returns false, with some texts appended, if a line is
// not an object with a text in this column, or has a form that only the Python reader supports.
bool append_json_texts(std::string_view lines, std::string_view column, std::string& out);

}  // namespace chainrule
