#include "text/line_sketch.hpp"

#include <algorithm>
#include <limits>

#include "text/blake2b.hpp"
#include "text/utf8.hpp"

namespace chainrule {

namespace {

// The smallest numbers met so far: those above the bound cannot be among them any more.
class Smallest {
  public:
    explicit Smallest(std::size_t size = 0) : size_(size) {}

    void add(std::uint64_t value) {
        if (value > bound_) return;
        kept_.push_back(value);
        if (kept_.size() >= 4 * size_ + 16) shrink();
    }

    void shrink() {
        std::sort(kept_.begin(), kept_.end());
        kept_.erase(std::unique(kept_.begin(), kept_.end()), kept_.end());
        if (kept_.size() < size_ || kept_.empty()) return;
        kept_.resize(size_);
        if (size_) bound_ = kept_.back();
    }

    const std::vector<std::uint64_t>& kept() const { return kept_; }

  private:
    std::size_t size_;
    std::uint64_t bound_ = std::numeric_limits<std::uint64_t>::max();
    std::vector<std::uint64_t> kept_;
};

}  // namespace

std::optional<Sketch> sketch_lines(const PlainText& text, std::size_t shortest, std::size_t size,
                                   std::size_t threads) {
    threads = std::max<std::size_t>(threads, 1);
    std::vector<Smallest> parts(threads, Smallest(size));
    std::vector<std::uint64_t> lines_of(text.pieces());
    const bool is_plain =
        for_each_piece(text, threads, [&](std::size_t thread, std::size_t piece, std::string_view lines) {
            for_each_line(lines, [&](std::string_view line) {
                ++lines_of[piece];
                if (line.size() >= shortest && count_characters(line) >= shortest)
                    parts[thread].add(blake2b_64(line));
            });
        });
    if (!is_plain) return {};
    Smallest all(size);
    for (const Smallest& part : parts) {
        for (const std::uint64_t value : part.kept()) all.add(value);
    }
    all.shrink();
    Sketch made{all.kept(), 0};
    for (const std::uint64_t lines : lines_of) made.lines += lines;
    return made;
}

}  // namespace chainrule
