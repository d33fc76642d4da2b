// A zeroed array of floats whose first element lies on a cache line.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace chainrule {

class AlignedFloats {
  public:
    static constexpr std::size_t kAlignment = 64;

    AlignedFloats() = default;
    explicit AlignedFloats(std::size_t size)
        : size_(size), data_(static_cast<float*>(::operator new(bytes(size), std::align_val_t{kAlignment}))) {
        std::memset(data_.get(), 0, bytes(size));
    }

    float* data() { return data_.get(); }
    const float* data() const { return data_.get(); }
    std::size_t size() const { return size_; }

  private:
    struct Free {
        void operator()(float* data) const { ::operator delete(data, std::align_val_t{kAlignment}); }
    };
    static std::size_t bytes(std::size_t size) { return (size ? size : 1) * sizeof(float); }

    std::size_t size_ = 0;
    std::unique_ptr<float[], Free> data_;
};

}  // namespace chainrule
