// Numbers written to a file by several threads, each at its place.
#pragma once

#include <cstdint>
#include <fstream>
#include <mutex>
#include <span>
#include <string>

#include "base/error.hpp"

namespace chainrule {

class NumberOutput {
  public:
    explicit NumberOutput(const std::string& file) : file_(file), out_(file, std::ios::binary) { check(); }

    void write(std::uint64_t begin, std::span<const std::int32_t> numbers) {
        const std::lock_guard lock(mutex_);
        out_.seekp(static_cast<std::streamoff>(begin * sizeof(std::int32_t)));
        out_.write(reinterpret_cast<const char*>(numbers.data()),
                   static_cast<std::streamsize>(numbers.size_bytes()));
        check();
    }

    void close() {
        out_.close();
        check();
    }

  private:
    void check() const {
        if (!out_) throw Failure(file_ + " cannot be written; check that the disk has room for it");
    }

    std::string file_;
    std::ofstream out_;
    std::mutex mutex_;
};

}  // namespace chainrule
