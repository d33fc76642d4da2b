// A zeroed array of floats whose first element lies on a cache line, in large pages where it is large: rows
// of matrices are read in no order.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "base/pages.hpp"

namespace chainrule {

class AlignedFloats {
  public:
    AlignedFloats() = default;
    // Rows of this width; std::bad_alloc where no memory can have so many, whatever their product is in 64
    // bits.
    AlignedFloats(std::size_t rows, std::size_t width)
        : AlignedFloats(width > 0 && rows > kMost / width ? throw std::bad_alloc() : rows * width) {}
    explicit AlignedFloats(std::size_t size)
        : size_(size <= kMost ? size : throw std::bad_alloc()),
          data_(static_cast<float*>(take_memory(bytes(), Access::scattered))) {
        if (data_ == nullptr) throw std::bad_alloc();
        std::memset(data_, 0, bytes());
    }
    AlignedFloats(AlignedFloats&& other) noexcept { swap(other); }
    AlignedFloats& operator=(AlignedFloats&& other) noexcept {
        AlignedFloats(std::move(other)).swap(*this);
        return *this;
    }
    ~AlignedFloats() {
        if (data_ != nullptr) give_memory_back(data_, bytes());
    }

    float* data() { return data_; }
    const float* data() const { return data_; }
    std::size_t size() const { return size_; }

  private:
    static constexpr std::size_t kMost = static_cast<std::size_t>(-1) / 4 / sizeof(float);

    std::size_t bytes() const { return size_ * sizeof(float); }
    void swap(AlignedFloats& other) noexcept {
        std::swap(size_, other.size_);
        std::swap(data_, other.data_);
    }

    std::size_t size_ = 0;
    float* data_ = nullptr;
};

}  // namespace chainrule
