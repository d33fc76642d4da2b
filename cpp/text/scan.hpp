// Scans plain text once: sizes, word counts, line sketch, and the words in text order. A vocabulary chosen
// from the counts then encodes the text without reading it again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/buffer.hpp"
#include "text/encode.hpp"
#include "text/line_sketch.hpp"
#include "text/lines.hpp"
#include "text/words.hpp"

namespace chainrule {

// Ids of a text with the id `end` after each line.
struct ScannedIds {
    UninitializedBuffer<std::int32_t> ids;
    std::vector<std::uint32_t> unknown;  // numbers of the unknown words in text order
};

class TextScan {
  public:
    TextScan() = default;
    TextScan(TextScan&&) = default;
    TextScan& operator=(TextScan&&) = default;

    const WordCounts& words() const { return words_; }
    const TextCounts& sizes() const { return sizes_; }
    const Sketch& sketch() const { return sketch_; }

    // Encodes the text; `ids` by word number. Releases the stored words: a second call throws ArgumentError.
    ScannedIds encode(std::span<const std::int32_t> ids, std::int32_t unknown, std::int32_t end,
                      std::size_t threads);

  private:
    // The words of a piece, numbered by the thread that read it; kLineEnd after each line.
    struct Piece {
        UninitializedBuffer<std::uint32_t> numbers;
        std::size_t thread = 0;
    };
    static constexpr std::uint32_t kLineEnd = WordTable::kNone;

    friend std::optional<TextScan> scan_text(const PlainText&, const Splitting&, const SketchSize&,
                                             std::size_t, const std::function<void(std::string_view)>&);

    WordCounts words_;
    TextCounts sizes_;
    Sketch sketch_;
    std::vector<Piece> pieces_;
    std::vector<std::vector<std::uint32_t>> numbers_of_thread_;  // number in a thread -> number in words_
    bool is_encoded_ = false;
};

// Returns nothing if the text is not plain. `on_lines`, if set, receives the text in order, piece by piece,
// from any thread but one at a time.
std::optional<TextScan> scan_text(const PlainText& text, const Splitting& splitting, const SketchSize& sketch,
                                  std::size_t threads,
                                  const std::function<void(std::string_view)>& on_lines = {});

}  // namespace chainrule
