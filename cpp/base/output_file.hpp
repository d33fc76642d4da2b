// A new file written by several threads. It is on disk after `finish`; without `finish` it is removed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

namespace chainrule {

class OutputFile {
  public:
    explicit OutputFile(const std::string& path);  // throws Error if the file exists
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void write(std::uint64_t at, const char* bytes, std::size_t size);
    void finish();

  private:
    [[noreturn]] void fail(int error) const;

    std::string path_;
    bool is_finished_ = false;
    int descriptor_ = -1;          // on POSIX systems
    std::FILE* stream_ = nullptr;  // on other systems
    std::mutex mutex_;
};

}  // namespace chainrule
