// NumPy arrays as spans, looked at before they are trusted, and values as NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace chainrule {

using AnyArray = nanobind::ndarray<nanobind::ro>;

// The array `name` as a span of T: of this type, in a row in memory, with `ndim` axes.
template <class T>
std::span<const T> span_of(const AnyArray& array, const char* name, const char* type, std::size_t ndim = 1) {
    const std::string what(name);
    if (array.device_type() != nanobind::device::cpu::value) throw Failure(what + " must be in main memory");
    if (array.dtype() != nanobind::dtype<T>()) throw Failure(what + " must be an array of " + type);
    if (array.ndim() != ndim) {
        throw Failure(what + " has " + std::to_string(array.ndim()) + " axes, not " + std::to_string(ndim));
    }
    std::int64_t step = 1;
    for (std::size_t i = ndim; i-- > 0; step *= static_cast<std::int64_t>(array.shape(i))) {
        if (array.shape(i) > 1 && array.size() > 0 && array.stride(i) != step) {
            throw Failure(what + " must lie in a row in memory; use numpy.ascontiguousarray");
        }
    }
    return {static_cast<const T*>(array.data()), array.size()};
}

// A NumPy array that owns these values.
template <class T>
nanobind::ndarray<nanobind::numpy, T> array_of(std::vector<T> values,
                                               std::initializer_list<std::size_t> shape) {
    auto kept = std::make_unique<std::vector<T>>(std::move(values));
    T* data = kept->data();
    const nanobind::capsule owner(kept.get(), [](void* p) noexcept {
        std::unique_ptr<std::vector<T>>(static_cast<std::vector<T>*>(p));
    });
    kept.release();
    return nanobind::ndarray<nanobind::numpy, T>(data, shape, owner);
}

}  // namespace chainrule
