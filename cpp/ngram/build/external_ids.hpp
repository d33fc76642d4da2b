// Word numbers of a text, `end` after each line, read in order from memory or from a file.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace chainrule {

class IdSource {
  public:
    virtual ~IdSource() = default;
    // Calls `use` with the numbers, so many at a time, from the first to the last.
    virtual void read(const std::function<void(std::span<const std::int32_t>)>& use) const = 0;
};

// In memory, which must outlive it.
class IdArray final : public IdSource {
  public:
    explicit IdArray(std::span<const std::int32_t> ids) : ids_(ids) {}
    void read(const std::function<void(std::span<const std::int32_t>)>& use) const override { use(ids_); }

  private:
    std::span<const std::int32_t> ids_;
};

// A file of little-endian numbers of four bytes; Failure where it cannot be read or ends within a number.
class IdFile final : public IdSource {
  public:
    explicit IdFile(std::string path) : path_(std::move(path)) {}
    void read(const std::function<void(std::span<const std::int32_t>)>& use) const override;

  private:
    std::string path_;
};

// What numbers mean.
struct TextFacts {
    std::uint32_t vocabulary = 0, begin = 0, end = 0;
    bool is_stream = false;  // <s> once, and lines go on from the one before
};

}  // namespace chainrule
