// The bytes of a file, without a copy of them where the system can map files into memory.
//
// Whoever shortens a mapped file while it is read ends this process: the system has no softer answer.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace chainrule {

class MappedFile {
  public:
    // A file of at most `read_ahead` bytes is on its way into memory when this returns, of a larger one only
    // what is read.
    explicit MappedFile(const std::string& file, std::size_t read_ahead = static_cast<std::size_t>(-1));
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::string_view bytes() const { return mapped_ ? std::string_view(mapped_, size_) : read_; }

  private:
    const char* mapped_ = nullptr;
    std::size_t size_ = 0;
    std::string read_;  // of what cannot be mapped: pipes, empty files, other systems
};

}  // namespace chainrule
