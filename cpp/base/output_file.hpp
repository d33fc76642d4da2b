// A new file written by several threads. It is on disk after `finish`; without `finish` it is removed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

namespace chainrule {

class OutputFile {
  public:
    explicit OutputFile(const std::string& path);  // Throws Error if there is such a file already
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void write(std::uint64_t at, const char* bytes, std::size_t size);
    void finish();

  private:
    [[noreturn]] void fail(int error) const;

    std::string path_;
    bool is_finished_ = false;
    int descriptor_ = -1;          // where the system has them
    std::FILE* stream_ = nullptr;  // elsewhere
    std::mutex mutex_;
};

}  // namespace chainrule
