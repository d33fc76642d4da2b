// Memory for tables: on a cache line and, where it is much, straight from the system, in large pages if
// wanted.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.hpp"

namespace chainrule {

// How the memory will be written and read. Scattered access touches another page nearly each time, and of
// pages of 2 MB the processor can remember all it needs. Where access is in order small pages do as well, and
// the system has them at hand: it may have to make a large one first, which was seen to take ten times as
// long.
enum class Access { in_order, scattered };

// Null where there is none; never null for 0 bytes.
void* take_memory(std::size_t bytes, Access access) noexcept;
void give_memory_back(void* memory, std::size_t bytes) noexcept;  // `bytes` as they were asked for

// A block of numbers that nobody has set yet: large tables are written once, front to back or scattered, and
// setting them to zero first (as std::vector does) would read and write all of that memory for nothing.

template <class T>
class Array {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 64);

  public:
    Array() = default;
    explicit Array(std::size_t size, Access access = Access::in_order) : size_(size) {
        const bool fits = size <= static_cast<std::size_t>(-1) / 2 / sizeof(T);
        if (fits) data_ = {static_cast<T*>(take_memory(size * sizeof(T), access)), Free{size * sizeof(T)}};
        if (!data_)
            throw Failure("there is no memory for " + std::to_string(size) + " numbers of " +
                          std::to_string(sizeof(T)) + " bytes");
    }
    Array(Array&& other) noexcept : size_(std::exchange(other.size_, 0)), data_(std::move(other.data_)) {}
    Array& operator=(Array&& other) noexcept {
        data_ = std::move(other.data_);
        size_ = std::exchange(other.size_, 0);
        return *this;
    }

    // The same memory for other numbers of the same size, which std::memcpy must put there before they are
    // read.
    template <class U>
    Array<U> become() && {
        static_assert(sizeof(U) == sizeof(T));
        Array<U> other;
        other.size_ = std::exchange(size_, 0);
        const std::size_t bytes = data_.get_deleter().bytes;
        other.data_ = {reinterpret_cast<U*>(data_.release()), typename Array<U>::Free{bytes}};
        return other;
    }

    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    std::size_t size() const { return size_; }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    T* begin() { return data(); }
    T* end() { return data() + size_; }
    const T* begin() const { return data(); }
    const T* end() const { return data() + size_; }

  private:
    template <class U>
    friend class Array;

    struct Free {
        std::size_t bytes = 0;
        void operator()(T* data) const { give_memory_back(data, bytes); }
    };

    std::size_t size_ = 0;
    std::unique_ptr<T[], Free> data_;
};

// A zeroed array of floats whose first element lies on a cache line, in large pages where it is large: rows
// of matrices are read in no order.

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
