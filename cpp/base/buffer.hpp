// A block of numbers that nobody has set yet: large tables are written once, front to back or scattered, and
// setting them to zero first (as std::vector does) would read and write all of that memory for nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "base/pages.hpp"

namespace chainrule {

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

}  // namespace chainrule
