// Memory for large tables: aligned to a cache line and, for large blocks, mapped directly from the system, in
// huge pages on request.
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

// Access pattern. Scattered access touches a different page nearly every time; with huge pages (2 MB) the TLB
// covers the whole table. For sequential access small pages are as fast and readily available,
// while the system may have to compact memory for a huge page (measured: ten times slower).
enum class Access { in_order, scattered };

// Returns null if the system has no memory; never null for 0 bytes.
void* allocate_memory(std::size_t bytes, Access access) noexcept;
void release_memory(void* memory, std::size_t bytes) noexcept;  // `bytes` as allocated

// A fixed-size block whose values are not initialised. Large tables are written exactly once, so setting them
// to zero first, as std::vector does, would only cost memory bandwidth.

template <class T>
class UninitializedBuffer {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 64);

  public:
    UninitializedBuffer() = default;
    explicit UninitializedBuffer(std::size_t size, Access access = Access::in_order) : size_(size) {
        const bool fits = size <= static_cast<std::size_t>(-1) / 2 / sizeof(T);
        if (fits)
            data_ = {static_cast<T*>(allocate_memory(size * sizeof(T), access)), Free{size * sizeof(T)}};
        if (!data_)
            throw OutOfMemory("there is not enough memory for " + std::to_string(size) + " values of " +
                              std::to_string(sizeof(T)) + " bytes");
    }
    UninitializedBuffer(UninitializedBuffer&& other) noexcept
        : size_(std::exchange(other.size_, 0)), data_(std::move(other.data_)) {}
    UninitializedBuffer& operator=(UninitializedBuffer&& other) noexcept {
        data_ = std::move(other.data_);
        size_ = std::exchange(other.size_, 0);
        return *this;
    }

    // Hands the memory over to a buffer of another type of the same size; the values must be written with
    // std::memcpy before they are read.
    template <class U>
    UninitializedBuffer<U> reinterpret_as() && {
        static_assert(sizeof(U) == sizeof(T));
        UninitializedBuffer<U> other;
        other.size_ = std::exchange(size_, 0);
        const std::size_t bytes = data_.get_deleter().bytes;
        other.data_ = {reinterpret_cast<U*>(data_.release()), typename UninitializedBuffer<U>::Free{bytes}};
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
    friend class UninitializedBuffer;

    struct Free {
        std::size_t bytes = 0;
        void operator()(T* data) const { release_memory(data, bytes); }
    };

    std::size_t size_ = 0;
    std::unique_ptr<T[], Free> data_;
};

// A zero-initialised array of floats aligned to a cache line, in huge pages if it is large: rows of a matrix
// are accessed in random order.

class AlignedFloats {
  public:
    AlignedFloats() = default;
    // `rows` rows of `width` floats; std::bad_alloc if the size overflows.
    AlignedFloats(std::size_t rows, std::size_t width)
        : AlignedFloats(width > 0 && rows > kMax / width ? throw std::bad_alloc() : rows * width) {}
    explicit AlignedFloats(std::size_t size)
        : size_(size <= kMax ? size : throw std::bad_alloc()),
          data_(static_cast<float*>(allocate_memory(bytes(), Access::scattered))) {
        if (data_ == nullptr) throw std::bad_alloc();
        std::memset(data_, 0, bytes());
    }
    AlignedFloats(AlignedFloats&& other) noexcept { swap(other); }
    AlignedFloats& operator=(AlignedFloats&& other) noexcept {
        AlignedFloats(std::move(other)).swap(*this);
        return *this;
    }
    ~AlignedFloats() {
        if (data_ != nullptr) release_memory(data_, bytes());
    }

    float* data() { return data_; }
    const float* data() const { return data_; }
    std::size_t size() const { return size_; }

  private:
    static constexpr std::size_t kMax = static_cast<std::size_t>(-1) / 4 / sizeof(float);

    std::size_t bytes() const { return size_ * sizeof(float); }
    void swap(AlignedFloats& other) noexcept {
        std::swap(size_, other.size_);
        std::swap(data_, other.data_);
    }

    std::size_t size_ = 0;
    float* data_ = nullptr;
};

// Prefetches memory that will be read soon, where the compiler supports it.
inline void prefetch([[maybe_unused]] const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address);
#endif
}

}  // namespace chainrule
