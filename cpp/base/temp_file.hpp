// Temporary files for what memory is too short for: written and read in order, or by place, never mapped (the
// pages of a mapped file count as memory of the process). A file has no name from the moment it is open, so
// that it is gone when its owner is, however that ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/buffer.hpp"

namespace chainrule {

// Where temporary files are made.
struct SpillFolder {
    std::string path;
    std::uint64_t needed = 0;  // bytes that all of them take at most, about: said where the disk is full
};

// Numbers of 32 bits by place. Several threads may read.
class SpillFile {
  public:
    SpillFile() = default;
    explicit SpillFile(std::shared_ptr<const SpillFolder> folder);
    SpillFile(SpillFile&& other) noexcept;
    SpillFile& operator=(SpillFile&& other) noexcept;
    ~SpillFile();

    void write(std::uint64_t at, const std::uint32_t* numbers, std::size_t count);
    void read(std::uint64_t at, void* numbers, std::size_t count) const;  // floats too: any 32 bits

  private:
    void close() noexcept;

    std::shared_ptr<const SpillFolder> folder_;
    int descriptor_ = -1;
};

// Numbers written one behind the other from a place on.
class SpillWriter {
  public:
    SpillWriter(SpillFile& file, std::size_t buffered, std::uint64_t from = 0)
        : file_(&file), at_(from), buffer_(buffered) {}

    // Room for `count` numbers, at most as many as are buffered, which the caller writes there.
    std::uint32_t* next(std::size_t count) {
        if (size_ + count > buffer_.size()) [[unlikely]]
            flush();
        std::uint32_t* const room = buffer_.data() + size_;
        size_ += count;
        return room;
    }
    void push(std::uint32_t number) { *next(1) = number; }
    void flush() {
        file_->write(at_, buffer_.data(), size_);
        at_ += size_;
        size_ = 0;
    }

  private:
    SpillFile* file_;
    std::uint64_t at_;
    std::size_t size_ = 0;
    Array<std::uint32_t> buffer_;
};

// Numbers [from, to) of a file, read one behind the other.
class SpillReader {
  public:
    SpillReader(const SpillFile& file, std::size_t buffered, std::uint64_t from, std::uint64_t to)
        : file_(&file), at_(from), to_(to), buffer_(buffered) {}

    // The next `count` numbers, at most as many as are buffered; there until the next call.
    const std::uint32_t* next(std::size_t count) {
        if (begin_ + count > end_) [[unlikely]]
            fill(count);
        const std::uint32_t* const numbers = buffer_.data() + begin_;
        begin_ += count;
        return numbers;
    }

  private:
    void fill(std::size_t count);

    const SpillFile* file_;
    std::uint64_t at_, to_;
    std::size_t begin_ = 0, end_ = 0;
    Array<std::uint32_t> buffer_;
};

}  // namespace chainrule
