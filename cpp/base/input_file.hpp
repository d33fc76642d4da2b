// A regular file opened for reading at any position by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

namespace chainrule {

// Selects the exception type of an InputFile: IoError, or ModelFileError for a model file.
enum class FileRole { text, model };

class InputFile {
  public:
    explicit InputFile(
        const std::string& path,
        FileRole role = FileRole::text);  // throws Error if it is missing or not a regular file
    ~InputFile();
    InputFile(const InputFile&) = delete;
    InputFile& operator=(const InputFile&) = delete;

    std::uint64_t size() const { return size_; }  // in bytes, at opening time

    // Copies bytes [at, at + size) of the file. Throws Error if the file has become shorter, or on an I/O
    // error.
    void read(std::uint64_t at, char* into, std::size_t size) const;

    // The whole file mapped into memory, nullptr if not supported. The mapping ends with this object.
    // If the file is modified, the mapped bytes change; if it is truncated, reading them is fatal
    // (SIGBUS). Call check_unchanged before each use.
    const char* map();
    bool is_mapped() const { return mapped_ != nullptr; }

    // Throws Error if size, modification time or (other than by adding or removing a hard link) status of the
    // file changed since it was opened.
    void check_unchanged() const;

  private:
    struct Status;

    [[noreturn]] void fail(const std::string& what) const;

    std::string path_;
    FileRole role_;
    std::uint64_t size_ = 0;
    int descriptor_ = -1;             // on POSIX systems
    std::FILE* stream_ = nullptr;     // on other systems
    std::unique_ptr<Status> status_;  // at opening time
    mutable std::mutex mutex_;        // guards stream_ or status_
    const char* mapped_ = nullptr;
};

// Bytes of physical memory; 0 if unknown.
std::uint64_t physical_memory();

// Reads all bytes of a file or pipe.
std::string read_whole(const std::string& path);

}  // namespace chainrule
