#include "base/spill_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.hpp"

#if __has_include(<unistd.h>)
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#define CHAINRULE_SPILLS 1
#endif

namespace chainrule {

namespace {

[[noreturn]] void fail(const SpillFolder& folder, const std::string& what) {
    throw IoError(folder.path + " " + what + " (" + std::generic_category().message(errno) +
                  "); training within this memory limit needs up to " +
                  std::to_string((folder.needed >> 20) + 1) +
                  " MB of temporary files: choose another folder");
}

}  // namespace

SpillFile::SpillFile(std::shared_ptr<const SpillFolder> folder) : folder_(std::move(folder)) {
#if defined(CHAINRULE_SPILLS)
    std::string name = folder_->path + "/chainrule-XXXXXX";
    descriptor_ = mkstemp(name.data());
    if (descriptor_ < 0) fail(*folder_, "cannot be written to");
    unlink(name.c_str());
    fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
#else
    throw Error("training within a memory limit needs temporary files, which this system does not support");
#endif
}

SpillFile::SpillFile(SpillFile&& other) noexcept
    : folder_(std::move(other.folder_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

SpillFile& SpillFile::operator=(SpillFile&& other) noexcept {
    if (this == &other) return *this;
    close();
    folder_ = std::move(other.folder_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    return *this;
}

SpillFile::~SpillFile() { close(); }

void SpillFile::close() noexcept {
#if defined(CHAINRULE_SPILLS)
    if (descriptor_ >= 0) ::close(descriptor_);
#endif
    descriptor_ = -1;
}

void SpillFile::write(std::uint64_t at, const std::uint32_t* numbers, std::size_t count) {
#if defined(CHAINRULE_SPILLS)
    const char* from = reinterpret_cast<const char*>(numbers);
    std::size_t left = count * sizeof *numbers;
    std::uint64_t offset = at * sizeof *numbers;
    while (left > 0) {
        const ssize_t written = pwrite(descriptor_, from, left, static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) fail(*folder_, "cannot store more data");
        from += written;
        offset += static_cast<std::uint64_t>(written);
        left -= static_cast<std::size_t>(written);
    }
#endif
}

void SpillFile::read(std::uint64_t at, void* numbers, std::size_t count) const {
#if defined(CHAINRULE_SPILLS)
    char* into = static_cast<char*>(numbers);
    std::size_t left = count * sizeof(std::uint32_t);
    std::uint64_t offset = at * sizeof(std::uint32_t);
    while (left > 0) {
        const ssize_t got = pread(descriptor_, into, left, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = EIO;  // the file is shorter than expected
        if (got <= 0) fail(*folder_, "did not return all bytes that were written to it");
        into += got;
        offset += static_cast<std::uint64_t>(got);
        left -= static_cast<std::size_t>(got);
    }
#endif
}

void SpillFile::release([[maybe_unused]] std::uint64_t at, [[maybe_unused]] std::uint64_t count) noexcept {
#if defined(FALLOC_FL_PUNCH_HOLE)
    constexpr auto kSize = static_cast<off_t>(sizeof(std::uint32_t));
    if (count > 0)
        fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at) * kSize,
                  static_cast<off_t>(count) * kSize);
#endif
}

void SpillReader::fill(std::size_t count) {
    const std::size_t unread = end_ - begin_;
    std::memmove(buffer_.data(), buffer_.data() + begin_, unread * sizeof(std::uint32_t));
    const auto requested =
        static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size() - unread, to_ - at_));
    if (unread + requested < count)
        throw Error("a temporary file ended unexpectedly: this is a bug in chainrule");
    file_->read(at_, buffer_.data() + unread, requested);
    at_ += requested;
    begin_ = 0;
    end_ = unread + requested;
}

}  // namespace chainrule
