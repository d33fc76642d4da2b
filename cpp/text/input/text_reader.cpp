#include "text/input/text_reader.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/parallel.hpp"
#include "text/input/json_lines.hpp"
#include "text/utf8.hpp"

namespace chainrule {

namespace {

constexpr std::string_view kMark = "\xEF\xBB\xBF";

// Line ends of a block that ends with LF or is the last.
std::uint64_t count_line_ends(std::string_view bytes) {
    auto ends = static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
    for (std::size_t at = 0; (at = bytes.find('\r', at)) != std::string_view::npos; ++at)
        ends += at + 1 == bytes.size() || bytes[at + 1] != '\n';
    return ends;
}

// Concatenates the documents; false if one is not UTF-8.
bool append_documents(const TextBlock& block, std::string& out) {
    const std::string_view bytes = block.bytes;
    if (!is_utf8(bytes)) return false;
    std::uint64_t begin = 0;
    for (const std::uint64_t end : block.ends) {
        // Valid as a whole: each document is valid unless a character is divided between two.
        if (begin < end && (static_cast<unsigned char>(bytes[begin]) & 0xC0) == 0x80) return false;
        append_document(bytes.substr(begin, end - begin), out);
        begin = end;
    }
    return true;
}

// The exception of the first block that has one.
class FirstFault {
  public:
    void add(std::size_t number, std::exception_ptr fault) {
        const std::lock_guard lock(mutex_);
        if (!fault_ || number < number_) {
            number_ = number;
            fault_ = std::move(fault);
        }
        is_set_ = true;
    }

    bool is_set() const { return is_set_; }

    void rethrow() const {
        if (fault_) std::rethrow_exception(fault_);
    }

  private:
    std::mutex mutex_;
    std::atomic<bool> is_set_{false};
    std::size_t number_ = 0;
    std::exception_ptr fault_;
};

}  // namespace

void check_word_lengths(const TextPiece& piece) {
    if (piece.segments.size() > 1 && has_long_word(piece.text, kLongestLine)) throw NotReadable();
}

bool TextReader::for_each_piece(std::size_t threads,
                                const std::function<void(std::size_t, const TextPiece&)>& work,
                                const std::function<void()>& on_fault) {
    FirstFault fault;
    parallel_for(std::max<std::size_t>(threads, 1), [&](std::size_t thread) {
        TextBlock block;
        TextPiece piece;
        try {
            for (;;) {
                {
                    const std::lock_guard lock(mutex_);
                    if (fault.is_set() || !next_block(block)) return;
                }
                piece.number = block.number;
                piece.text = lines_of(block);
                split_long_lines(piece.text, kLongestLine, piece.segments);
                work(thread, piece);
            }
        } catch (...) {
            fault.add(block.number, std::current_exception());
            if (on_fault) on_fault();
        }
    });
    try {
        fault.rethrow();
    } catch (const NotReadable&) {
        return false;
    }
    return true;
}

std::optional<std::string> TextReader::next_lines() {
    TextBlock block;
    while (next_block(block)) {
        if (std::string lines = lines_of(block); !lines.empty()) return lines;
    }
    return {};
}

bool TextReader::next_block(TextBlock& block) {
    block.number = blocks_++;
    for (; input_ < inputs_.size(); advance()) {
        TextInput& input = inputs_[input_];
        if (!is_begun_) {
            is_begun_ = true;
            offset_ = input.offset;
            first_ = input.first;
        }
        block.input = input_;
        block.offset = offset_;
        block.first = first_;
        block.ends.clear();
        if (input.format == TextFormat::documents) {
            block.bytes.clear();
            if (!input.read(block)) continue;
            first_ += block.ends.size();
        } else if (!fill_with_lines(block)) {
            continue;
        }
        offset_ += block.bytes.size();
        if (input.format == TextFormat::json) first_ += count_line_ends(block.bytes);
        return true;
    }
    return false;
}

bool TextReader::fill_with_lines(TextBlock& block) {
    const TextInput& input = inputs_[input_];
    block.bytes = std::exchange(rest_, {});
    std::size_t searched = 0;
    while (!is_at_end_) {
        if (block.bytes.size() >= options_.block) {
            const std::size_t end = std::string_view(block.bytes).substr(searched).rfind('\n');
            if (end != std::string_view::npos) {
                rest_.assign(block.bytes, searched + end + 1);
                block.bytes.resize(searched + end + 1);
                return true;
            }
            searched = block.bytes.size();
            if (searched > options_.longest && input.format != TextFormat::json) throw NotReadable();
        }
        is_at_end_ = !input.read(block);
    }
    return !block.bytes.empty();
}

void TextReader::advance() {
    ++input_;
    is_begun_ = is_at_end_ = false;
}

std::string TextReader::lines_of(TextBlock& block) {
    const TextFormat format = inputs_[block.input].format;
    std::string lines;
    bool is_plain = true;
    if (format == TextFormat::text) {
        lines = std::move(block.bytes);
    } else if (format == TextFormat::documents) {
        is_plain = append_documents(block, lines);
    } else if (!is_utf8(block.bytes)) {
        is_plain = false;
    } else {
        std::string_view bytes = block.bytes;
        const bool has_mark = !block.offset && bytes.starts_with(kMark);
        if (has_mark) bytes.remove_prefix(kMark.size());
        if (format == TextFormat::json) {
            lines.reserve(bytes.size());
            is_plain = append_json_texts(bytes, options_.column, lines);
        } else if (!has_mark && bytes.ends_with('\n') && bytes.find('\r') == std::string_view::npos) {
            lines = std::move(block.bytes);
        } else if (!bytes.empty()) {
            append_document(bytes, lines);
        }
    }
    if (!is_plain) {
        auto [text, replaced] = options_.convert(block);
        lines = std::move(text);
        replaced_ += replaced;
    }
    if (options_.drops_blank_lines) drop_blank_lines(lines);
    return lines;
}

}  // namespace chainrule
