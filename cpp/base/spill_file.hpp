// Temporary files for data that does not fit in memory. They are read and written with pread/pwrite and never
// mapped, because mapped pages count as memory of the process. A file is unlinked as soon as it is open, so
// that it disappears however the process ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/buffer.hpp"

namespace chainrule {

// Directory of the temporary files.
struct SpillFolder {
    std::string path;
    std::uint64_t needed = 0;  // approximate bytes needed, for the message when the disk is full
};

// A file of 32-bit numbers addressed by index. Several threads may read it.
class SpillFile {
  public:
    SpillFile() = default;
    explicit SpillFile(std::shared_ptr<const SpillFolder> folder);
    SpillFile(SpillFile&& other) noexcept;
    SpillFile& operator=(SpillFile&& other) noexcept;
    ~SpillFile();

    void write(std::uint64_t at, const std::uint32_t* numbers, std::size_t count);
    void read(std::uint64_t at, void* numbers, std::size_t count) const;  // any 32-bit type
    // Returns the disk space of numbers that are no longer needed, where the system supports it.
    void release(std::uint64_t at, std::uint64_t count) noexcept;

  private:
    void close() noexcept;

    std::shared_ptr<const SpillFolder> folder_;
    int descriptor_ = -1;
};

// Buffered sequential writer, starting at index `from`.
class SpillWriter {
  public:
    SpillWriter(SpillFile& file, std::size_t buffered, std::uint64_t from = 0)
        : file_(&file), at_(from), buffer_(buffered) {}

    // Returns space for `count` numbers (at most the buffer size), which the caller fills.
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
    UninitializedBuffer<std::uint32_t> buffer_;
};

// Buffered sequential reader of the numbers [from, to).
class SpillReader {
  public:
    SpillReader(const SpillFile& file, std::size_t buffered) : SpillReader(file, buffered, 0, 0) {}
    SpillReader(const SpillFile& file, std::size_t buffered, std::uint64_t from, std::uint64_t to)
        : file_(&file), at_(from), to_(to), buffer_(buffered) {}

    // Continues with the numbers [from, to).
    void restart(std::uint64_t from, std::uint64_t to) {
        at_ = from;
        to_ = to;
        begin_ = end_ = 0;
    }
    // Returns the next `count` numbers (at most the buffer size), valid until the next call.
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
    UninitializedBuffer<std::uint32_t> buffer_;
};

}  // namespace chainrule
