// Sketch of a plain text: the smallest hashes of its longer lines (text/fingerprint.py).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "text/lines.hpp"

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

    void add(std::string_view lines);  // each line ends with LF
    void shrink();                     // keeps the smallest hashes

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

// Returns nothing if the text is not plain.
std::optional<Sketch> sketch_lines(const PlainText& text, const SketchSize& size, std::size_t threads);

}  // namespace chainrule
