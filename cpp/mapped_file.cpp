#include "mapped_file.hpp"

#include <fstream>
#include <sstream>
#include <utility>

#include "failure.hpp"

#if __has_include(<sys/mman.h>)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define CHAINRULE_MAPS_FILES 1
#endif

namespace chainrule {

MappedFile::MappedFile(const std::string& file, [[maybe_unused]] std::size_t read_ahead) {
#if defined(CHAINRULE_MAPS_FILES)
    const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) throw Failure(file + " cannot be read");
    struct stat about{};
    if (fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0) {
        size_ = static_cast<std::size_t>(about.st_size);
        void* address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (address != MAP_FAILED) {
            mapped_ = static_cast<const char*>(address);
            if (size_ <= read_ahead) madvise(address, size_, MADV_WILLNEED);
        }
    }
    close(descriptor);
    if (mapped_) return;
#endif
    std::ifstream in(file, std::ios::binary);
    std::ostringstream all;
    if (in && in.peek() != std::ifstream::traits_type::eof()) all << in.rdbuf();
    if (!in.is_open() || in.bad()) throw Failure(file + " cannot be read");
    read_ = std::move(all).str();
}

MappedFile::~MappedFile() {
#if defined(CHAINRULE_MAPS_FILES)
    if (mapped_) munmap(const_cast<char*>(mapped_), size_);
#endif
}

}  // namespace chainrule
