// A regular file opened for reading at any position by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

namespace chainrule {

// What the errors of an InputFile are: IoError, or ModelFileError for a model file.
enum class FileRole { text, model };

class InputFile {
  public:
    explicit InputFile(
        const std::string& path,
        FileRole role = FileRole::text);  // throws Error if it is missing or not a regular file
    ~InputFile();
    InputFile(const InputFile&) = delete;
    InputFile& operator=(const InputFile&) = delete;

    std::uint64_t size() const { return size_; }  // in bytes, when it was opened

    // Copies bytes [at, at + size) of the file. Throws Error if the file has become shorter, or on an I/O
    // error.
    void read(std::uint64_t at, char* into, std::size_t size) const;

    // The whole file mapped into memory, nullptr where the system cannot. The mapping ends with this object.
    // Whoever changes the file changes the mapped bytes; one who shortens it makes reading them fatal
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
    int descriptor_ = -1;             // where the system has them
    std::FILE* stream_ = nullptr;     // elsewhere
    std::unique_ptr<Status> status_;  // when it was opened
    mutable std::mutex mutex_;        // of stream_, or of status_
    const char* mapped_ = nullptr;
};

// Bytes of physical memory; 0 where the system does not say.
std::uint64_t physical_memory();

// All bytes of a file, or of a pipe until it ends.
std::string read_whole(const std::string& path);

}  // namespace chainrule
