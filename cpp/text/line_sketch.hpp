// Sketch of a text: the smallest hashes of its longer lines (text/fingerprint.py).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/input/text_reader.hpp"

namespace chainrule {

struct Sketch {
    std::vector<std::uint64_t> hashes;  // ascending, without duplicates
    std::uint64_t lines = 0;
};

// At most `size` hashes of lines with `shortest` characters or more; no hashes if `size` is 0.
struct SketchSize {
    std::size_t shortest = 0, size = 0;
};

// The hashes of the lines read by one thread.
class LineSketcher {
  public:
    explicit LineSketcher(const SketchSize& size) : size_(size) {}

    void add(const TextPiece& piece);
    void add_lines(std::string_view lines);  // without counting them
    void shrink();                           // keeps the smallest hashes

    const std::vector<std::uint64_t>& hashes() const { return hashes_; }
    std::uint64_t lines() const { return lines_; }

  private:
    friend Sketch merge_sketches(const std::vector<LineSketcher>& parts);
    void add_hash(std::uint64_t value);

    SketchSize size_;
    std::uint64_t bound_ = std::numeric_limits<std::uint64_t>::max();  // larger hashes are skipped
    std::vector<std::uint64_t> hashes_;
    std::uint64_t lines_ = 0;
};

Sketch merge_sketches(const std::vector<LineSketcher>& parts);

// Receives a text in order, piece by piece, from any thread but one at a time.
using OnLines = std::function<void(const std::string&)>;

// Pieces that may be ahead of the one that is passed on next.
inline std::size_t pieces_ahead(std::size_t threads) { return threads + 1; }

// Returns nothing if a line is too long.
std::optional<Sketch> sketch_lines(TextReader& text, const SketchSize& size, std::size_t threads,
                                   const OnLines& on_lines = {});

}  // namespace chainrule
