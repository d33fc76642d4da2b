#include "base/input_file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/error.hpp"

#if __has_include(<sys/mman.h>)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define CHAINRULE_HAS_DESCRIPTORS 1
#endif

namespace chainrule {

void InputFile::fail(const std::string& what) const {
    if (role_ == FileRole::model) throw ModelFileError(path_ + " " + what);
    throw IoError(path_ + " " + what);
}

#if defined(CHAINRULE_HAS_DESCRIPTORS)

namespace {

// Metadata that changes with every write to a file.
struct Times {
    std::int64_t modified_s, modified_ns, changed_s, changed_ns;
};

Times times_of(const struct stat& about) {
#if defined(__APPLE__)
    return {about.st_mtimespec.tv_sec, about.st_mtimespec.tv_nsec, about.st_ctimespec.tv_sec,
            about.st_ctimespec.tv_nsec};
#else
    return {about.st_mtim.tv_sec, about.st_mtim.tv_nsec, about.st_ctim.tv_sec, about.st_ctim.tv_nsec};
#endif
}

}  // namespace

struct InputFile::Status {
    Times times;
    std::uint64_t links;
};

InputFile::InputFile(const std::string& path, FileRole role) : path_(path), role_(role) {
    // O_NONBLOCK: opening a FIFO does not wait for a writer. It has no effect on regular files.
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) fail(std::string("cannot be read: ") + std::strerror(errno));
    struct stat about{};
    if (fstat(descriptor_, &about) != 0 || !S_ISREG(about.st_mode)) {
        close(descriptor_);
        fail("cannot be read: it is not a regular file");
    }
    size_ = static_cast<std::uint64_t>(about.st_size);
    status_ = std::make_unique<Status>(Status{times_of(about), static_cast<std::uint64_t>(about.st_nlink)});
}

InputFile::~InputFile() {
    if (mapped_) munmap(const_cast<char*>(mapped_), size_);
    if (descriptor_ >= 0) close(descriptor_);
}

void InputFile::read(std::uint64_t at, char* into, std::size_t size) const {
    while (size > 0) {
        const ssize_t count = pread(descriptor_, into, size, static_cast<off_t>(at));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail(std::string("cannot be read: ") + std::strerror(errno));
        if (count == 0) fail("became shorter while it was read; restore it and try again");
        at += static_cast<std::uint64_t>(count);
        into += count;
        size -= static_cast<std::size_t>(count);
    }
}

const char* InputFile::map() {
    if (mapped_ || size_ == 0) return mapped_;
    void* const address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor_, 0);
    if (address != MAP_FAILED) mapped_ = static_cast<const char*>(address);
    return mapped_;
}

void InputFile::check_unchanged() const {
    struct stat about{};
    if (fstat(descriptor_, &about) != 0) fail(std::string("cannot be read: ") + std::strerror(errno));
    const Times now = times_of(about);
    const std::lock_guard<std::mutex> lock(mutex_);
    const Times& then = status_->times;
    const bool is_written = static_cast<std::uint64_t>(about.st_size) != size_ ||
                            now.modified_s != then.modified_s || now.modified_ns != then.modified_ns;
    const bool is_touched = now.changed_s != then.changed_s || now.changed_ns != then.changed_ns;
    // A hard link added or removed (also by replacing the file) changes its status and not its bytes.
    const bool is_relinked = static_cast<std::uint64_t>(about.st_nlink) != status_->links;
    if (is_written || (is_touched && !is_relinked)) fail("changed after it was opened; load the model again");
    if (is_touched) *status_ = {now, static_cast<std::uint64_t>(about.st_nlink)};
}

std::uint64_t physical_memory() {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size) : 0;
}

#else

struct InputFile::Status {};

InputFile::InputFile(const std::string& path, FileRole role) : path_(path), role_(role) {
    stream_ = std::fopen(path.c_str(), "rb");
    if (!stream_) fail(std::string("cannot be read: ") + std::strerror(errno));
    const bool is_measured = std::fseek(stream_, 0, SEEK_END) == 0;
    const long size = is_measured ? std::ftell(stream_) : -1;
    if (size < 0) {
        std::fclose(stream_);
        fail("cannot be read: it is not a regular file");
    }
    size_ = static_cast<std::uint64_t>(size);
}

InputFile::~InputFile() {
    if (stream_) std::fclose(stream_);
}

void InputFile::read(std::uint64_t at, char* into, std::size_t size) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::fseek(stream_, static_cast<long>(at), SEEK_SET) != 0 ||
        std::fread(into, 1, size, stream_) != size)
        fail("became shorter while it was read; restore it and try again");
}

const char* InputFile::map() { return nullptr; }

void InputFile::check_unchanged() const {}

std::uint64_t physical_memory() { return 0; }

#endif

std::string read_whole(const std::string& path) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) {
        const InputFile file(path);
        std::string bytes(file.size(), '\0');
        file.read(0, bytes.data(), bytes.size());
        return bytes;
    }
    std::ifstream in(path, std::ios::binary);
    std::ostringstream all;
    if (in && in.peek() != std::ifstream::traits_type::eof()) all << in.rdbuf();
    if (!in.is_open() || in.bad()) throw IoError(path + " cannot be read");
    return std::move(all).str();
}

}  // namespace chainrule
