#include "base/output_file.hpp"

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

#if __has_include(<unistd.h>)
#include <fcntl.h>
#include <unistd.h>
#define CHAINRULE_HAS_DESCRIPTORS 1
#endif

namespace chainrule {

void OutputFile::fail(int error) const { throw WriteError(path_, error, std::strerror(error)); }

#if defined(CHAINRULE_HAS_DESCRIPTORS)

OutputFile::OutputFile(const std::string& path) : path_(path) {
    descriptor_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail(errno);
}

OutputFile::~OutputFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!is_finished_) unlink(path_.c_str());
}

void OutputFile::write(std::uint64_t at, const char* bytes, std::size_t size) {
    while (size > 0) {
        const ssize_t written = pwrite(descriptor_, bytes, size, static_cast<off_t>(at));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) fail(written < 0 ? errno : ENOSPC);
        at += static_cast<std::uint64_t>(written);
        bytes += written;
        size -= static_cast<std::size_t>(written);
    }
}

void OutputFile::finish() {
    if (fsync(descriptor_) != 0 && errno != EINVAL)
        fail(errno);  // EINVAL: fsync is not supported for this file
    const int closed = close(descriptor_);
    descriptor_ = -1;
    if (closed != 0) fail(errno);
    is_finished_ = true;
}

#else

OutputFile::OutputFile(const std::string& path) : path_(path) {
    stream_ = std::fopen(path.c_str(), "wbx");
    if (!stream_) fail(errno);
}

OutputFile::~OutputFile() {
    if (stream_) std::fclose(stream_);
    if (!is_finished_) std::remove(path_.c_str());
}

void OutputFile::write(std::uint64_t at, const char* bytes, std::size_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::fseek(stream_, static_cast<long>(at), SEEK_SET) != 0 ||
        std::fwrite(bytes, 1, size, stream_) != size)
        fail(errno);
}

void OutputFile::finish() {
    const int closed = std::fclose(stream_);
    stream_ = nullptr;
    if (closed != 0) fail(errno);
    is_finished_ = true;
}

#endif

}  // namespace chainrule
