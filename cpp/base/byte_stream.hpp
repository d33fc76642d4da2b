// Records of partitioned training as bytes: variable-length integers, little-endian numbers and arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.hpp"

namespace chainrule {

class ByteWriter {
  public:
    void varint(std::uint64_t value) {
        while (value >= 0x80) {
            bytes_.push_back(static_cast<char>(value | 0x80));
            value >>= 7;
        }
        bytes_.push_back(static_cast<char>(value));
    }
    template <class T>
    void number(T value) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    // The number of values, then the values.
    template <class T>
    void array(std::span<const T> values) {
        static_assert(std::is_trivially_copyable_v<T>);
        number<std::uint64_t>(values.size());
        bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    }
    void raw(std::string_view bytes) { bytes_.append(bytes); }
    // Adds zeros up to a multiple of 8, so that arrays of numbers can be read in place.
    void align() { bytes_.resize((bytes_.size() + 7) / 8 * 8); }

    std::size_t size() const { return bytes_.size(); }
    std::string_view view() const { return bytes_; }
    std::string take() { return std::move(bytes_); }

  private:
    std::string bytes_;
};

// Reads what ByteWriter wrote; throws Error at the end of the bytes.
class ByteReader {
  public:
    ByteReader() = default;
    explicit ByteReader(std::string_view bytes)
        : begin_(bytes.data()), at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

    bool is_at_end() const { return at_ == end_; }
    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            if (at_ == end_) fail();
            const auto byte = static_cast<unsigned char>(*at_++);
            value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
            if (!(byte & 0x80)) return value;
        }
        fail();
    }
    // A variable-length integer below 2^32.
    std::uint32_t varint32() {
        const std::uint64_t value = varint();
        if (value > 0xFFFFFFFF) fail();
        return static_cast<std::uint32_t>(value);
    }
    std::uint8_t byte() { return number<std::uint8_t>(); }
    template <class T>
    T number() {
        T value;
        std::memcpy(&value, raw(sizeof value).data(), sizeof value);
        return value;
    }
    // A view of the values of an array, which must be aligned.
    template <class T>
    std::span<const T> array() {
        const auto size = number<std::uint64_t>();
        if (size > static_cast<std::uint64_t>(end_ - at_) / sizeof(T)) fail();
        return {reinterpret_cast<const T*>(raw(size * sizeof(T)).data()), static_cast<std::size_t>(size)};
    }
    std::string_view raw(std::uint64_t size) {
        if (size > static_cast<std::uint64_t>(end_ - at_)) fail();
        const std::string_view bytes(at_, static_cast<std::size_t>(size));
        at_ += size;
        return bytes;
    }
    void align() { raw((8 - static_cast<std::uint64_t>(at_ - begin_) % 8) % 8); }

    [[noreturn]] static void fail() {
        throw Error("a record of partitioned training is damaged or of another version; train again");
    }

  private:
    const char *begin_ = nullptr, *at_ = nullptr, *end_ = nullptr;
};

}  // namespace chainrule
