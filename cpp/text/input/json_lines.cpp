#include "text/input/json_lines.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "text/lines.hpp"

namespace chainrule {

namespace {

constexpr int kDeepest = 64;               // levels of arrays and objects
constexpr std::ptrdiff_t kLongest = 1000;  // characters of a number; Python limits the digits of an integer

// A string between its quotation marks.
struct RawString {
    std::string_view letters;
    bool has_escapes = false;
};

// The four digits of \uXXXX; nothing if they are not hexadecimal.
std::optional<std::uint32_t> code_unit(const char* at, const char* stop) {
    if (stop - at < 4) return {};
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
        const char c = at[i];
        const bool is_digit = c >= '0' && c <= '9', is_small = c >= 'a' && c <= 'f',
                   is_large = c >= 'A' && c <= 'F';
        if (!is_digit && !is_small && !is_large) return {};
        const int digit = is_digit ? c - '0' : is_small ? c - 'a' + 10 : c - 'A' + 10;
        code = code * 16 + static_cast<std::uint32_t>(digit);
    }
    return code;
}

void append_utf8(std::uint32_t code, std::string& out) {
    const auto byte = [&](std::uint32_t bits) { out += static_cast<char>(bits); };
    if (code < 0x80) {
        byte(code);
    } else if (code < 0x800) {
        byte(0xC0 | code >> 6);
        byte(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        byte(0xE0 | code >> 12);
        byte(0x80 | (code >> 6 & 0x3F));
        byte(0x80 | (code & 0x3F));
    } else {
        byte(0xF0 | code >> 18);
        byte(0x80 | (code >> 12 & 0x3F));
        byte(0x80 | (code >> 6 & 0x3F));
        byte(0x80 | (code & 0x3F));
    }
}

// Appends the character of an escape sequence; `at` is after the backslash and is moved to its end. False for
// a lone surrogate and for an invalid sequence.
bool append_escape(const char*& at, const char* stop, std::string& out) {
    constexpr std::string_view names = "\"\\/bfnrt", characters = "\"\\/\b\f\n\r\t";
    if (at == stop) return false;
    if (const std::size_t i = names.find(*at); i != std::string_view::npos) {
        out += characters[i];
        ++at;
        return true;
    }
    if (*at != 'u') return false;
    const std::optional<std::uint32_t> first = code_unit(at + 1, stop);
    if (!first) return false;
    at += 5;
    if (*first < 0xD800 || *first > 0xDFFF) {
        append_utf8(*first, out);
        return true;
    }
    if (*first > 0xDBFF || stop - at < 6 || at[0] != '\\' || at[1] != 'u') return false;
    const std::optional<std::uint32_t> second = code_unit(at + 2, stop);
    if (!second || *second < 0xDC00 || *second > 0xDFFF) return false;
    at += 6;
    append_utf8(0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00), out);
    return true;
}

bool append_decoded(const RawString& string, std::string& out) {
    const char* at = string.letters.data();
    const char* const stop = at + string.letters.size();
    while (at < stop) {
        const auto* escape =
            static_cast<const char*>(std::memchr(at, '\\', static_cast<std::size_t>(stop - at)));
        if (!escape) escape = stop;
        out.append(at, escape);
        if (escape == stop) return true;
        at = escape + 1;
        if (!append_escape(at, stop, out)) return false;
    }
    return true;
}

// The first quotation mark, backslash or control character; `stop` if there is none.
const char* end_of_run(const char* at, const char* stop) {
    constexpr std::uint64_t ones = 0x0101010101010101ULL, high = ones << 7;
    if constexpr (std::endian::native == std::endian::little) {
        for (; stop - at >= 8; at += 8) {
            std::uint64_t x;
            std::memcpy(&x, at, 8);
            const std::uint64_t quotes = x ^ (ones * '"'), escapes = x ^ (ones * '\\');
            // Exact up to the lowest set bit.
            const std::uint64_t ends =
                (((quotes - ones) & ~quotes) | ((escapes - ones) & ~escapes) | ((x - ones * 0x20) & ~x)) &
                high;
            if (ends) return at + std::countr_zero(ends) / 8;
        }
    }
    while (at < stop && *at != '"' && *at != '\\' && static_cast<unsigned char>(*at) >= 0x20) ++at;
    return at;
}

// Checks one record as strictly as json.loads, and finds the text of a column.
class Record {
  public:
    Record(std::string_view line, std::string_view column)
        : at_(line.data()), stop_(at_ + line.size()), column_(column) {}

    // False unless the line is an object whose column is a string.
    bool parse() {
        skip_blanks();
        if (!take('{') || !object(1, true)) return false;
        skip_blanks();
        return at_ == stop_ && text_.has_value();
    }

    const RawString& text() const { return *text_; }

  private:
    void skip_blanks() {
        while (at_ < stop_ && (*at_ == ' ' || *at_ == '\t')) ++at_;
    }

    bool take(char c) {
        if (at_ == stop_ || *at_ != c) return false;
        ++at_;
        return true;
    }

    bool take(std::string_view word) {
        if (!std::string_view(at_, static_cast<std::size_t>(stop_ - at_)).starts_with(word)) return false;
        at_ += word.size();
        return true;
    }

    // A string after its first quotation mark. Its escape sequences are checked here.
    bool string(RawString& result) {
        const char* const begin = at_;
        result.has_escapes = false;
        for (;;) {
            at_ = end_of_run(at_, stop_);
            if (at_ == stop_ || static_cast<unsigned char>(*at_) < 0x20) return false;
            if (*at_ == '"') break;
            result.has_escapes = true;
            scratch_.clear();
            if (!append_escape(++at_, stop_, scratch_)) return false;
        }
        result.letters = {begin, at_++};
        return true;
    }

    bool digits() {
        const char* const begin = at_;
        while (at_ < stop_ && *at_ >= '0' && *at_ <= '9') ++at_;
        return at_ > begin;
    }

    bool number() {
        const char* const begin = at_;
        take('-');
        if (!take('0') && !digits()) return false;
        if (take('.') && !digits()) return false;
        if (at_ < stop_ && (*at_ == 'e' || *at_ == 'E')) {
            ++at_;
            if (at_ < stop_ && (*at_ == '+' || *at_ == '-')) ++at_;
            if (!digits()) return false;
        }
        return at_ - begin <= kLongest;
    }

    bool value(int depth) {
        if (depth > kDeepest || at_ == stop_) return false;
        RawString ignored;
        switch (*at_) {
            case '"':
                ++at_;
                return string(ignored);
            case '{':
                ++at_;
                return object(depth + 1, false);
            case '[':
                ++at_;
                return array(depth + 1);
            case 't':
                return take("true");
            case 'f':
                return take("false");
            case 'n':
                return take("null");
            default:
                return number();
        }
    }

    // After its opening bracket.
    bool array(int depth) {
        skip_blanks();
        if (take(']')) return true;
        for (;;) {
            skip_blanks();
            if (!value(depth)) return false;
            skip_blanks();
            if (take(']')) return true;
            if (!take(',')) return false;
        }
    }

    // After its opening brace.
    bool object(int depth, bool is_record) {
        skip_blanks();
        if (take('}')) return true;
        for (;;) {
            skip_blanks();
            RawString key;
            if (!take('"') || !string(key)) return false;
            const bool is_column = is_record && is(key, column_);
            skip_blanks();
            if (!take(':')) return false;
            skip_blanks();
            if (is_column) {  // the last value of a repeated key counts
                RawString text;
                if (!take('"') || !string(text)) return false;
                text_ = text;
            } else if (!value(depth)) {
                return false;
            }
            skip_blanks();
            if (take('}')) return true;
            if (!take(',')) return false;
        }
    }

    bool is(const RawString& key, std::string_view name) {
        if (!key.has_escapes) return key.letters == name;
        scratch_.clear();
        return append_decoded(key, scratch_) && scratch_ == name;
    }

    const char* at_;
    const char* stop_;
    std::string_view column_;
    std::optional<RawString> text_;
    std::string scratch_;
};

}  // namespace

bool append_json_texts(std::string_view lines, std::string_view column, std::string& out) {
    std::string text;
    for (std::size_t begin = 0; begin < lines.size();) {
        const std::size_t end = std::min(lines.find('\n', begin), lines.size());
        std::string_view line = lines.substr(begin, end - begin);
        begin = end + 1;
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
        Record record(line, column);
        if (!record.parse()) return false;
        if (!record.text().has_escapes) {
            append_document(record.text().letters, out);
            continue;
        }
        text.clear();
        if (!append_decoded(record.text(), text)) return false;
        append_document(text, out);
    }
    return true;
}

}  // namespace chainrule
