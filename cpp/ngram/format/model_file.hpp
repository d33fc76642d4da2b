// The file of an n-gram model, `model.ngram`: a header, and sections of bytes that a layout gives meaning to.
//
//   header: what is fixed, rows by order, where the sections are, a checksum of each block, its own checksum
//   blocks of 64 KiB, counted from the end of the header; the sections lie in them, each on a cache line
//
// A file is copied into private memory, a block at a time when it is first touched, a small file whole when
// it is opened, and it is the copy that is verified and read: a file that changes later changes no answer.
// Any bit that differs is a Failure, the header's too.
//
// A file too large for a copy is mapped instead. Then blocks are verified where they lie, and each call
// checks that the file has not changed since it was opened (begin_call); a change during a call goes
// unnoticed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.hpp"
#include "base/input_file.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

enum class LayoutKind : std::uint32_t { fast = 1, small = 2 };

struct FileFacts {
    LayoutKind layout = LayoutKind::fast;
    std::uint32_t bits = 0;  // 8: quantised; 0: as it was estimated
    ModelFacts model;
    std::vector<std::uint64_t> sizes;  // rows by order
};

inline constexpr std::uint64_t kBlock = 65536;   // bytes that have one checksum
inline constexpr std::uint64_t kCacheLine = 64;  // sections begin at multiples of it
inline constexpr std::uint64_t kVerifiedAtOpen = std::uint64_t{64} << 20;  // a file of so many bytes or fewer
inline constexpr std::uint32_t kMostOrders = 1000;
inline constexpr std::uint32_t kMostWords = 0x7FFFFFFF;
inline constexpr std::uint64_t kMostRows =
    0xFFFFFFFE;  // of one order: a row and the one behind it fit 32 bits

// One part of a file. `fill` writes bytes [from, from + size) of it; it is called, by several threads at
// once, for ranges of about a megabyte that begin at multiples of `chunk` and are whole chunks but for the
// last; a multiple of 8. All of `into` must be written.
struct Section {
    std::uint32_t id = 0;  // below 0x1000 for what all layouts have, see ngram/format/names.hpp
    std::uint64_t size = 0;
    std::uint64_t chunk = 65536;
    std::function<void(std::uint64_t from, std::uint64_t size, char* into)> fill;
    std::function<void()> prepare, done;  // may be empty: memory that only this section needs
};

// `path` is new, and on the disk when this returns; nothing is left of it on a Failure.
void write_model(const std::string& path, const FileFacts& facts, const std::vector<Section>& sections,
                 std::size_t threads);

// The same bytes in memory.
Array<char> model_image(const FileFacts& facts, const std::vector<Section>& sections, std::size_t threads);

// Immutable but for what has been verified; several threads may use one.
class ModelFile {
  public:
    // Bytes [from, to) of a section are as they were written; it throws Failure where their content is not
    // what a layout can read without leaving its sections. A block may hold parts of two sections, and a
    // section begin and end within a block.
    using Check = std::function<void(std::uint32_t section, std::uint64_t from, std::uint64_t to)>;

    // A file of more than `largest_copy` bytes is mapped; 0 stands for half of the physical memory.
    static std::shared_ptr<ModelFile> open(const std::string& path, bool verify_all,
                                           std::uint64_t verified_at_open = kVerifiedAtOpen,
                                           std::uint64_t largest_copy = 0);
    static std::shared_ptr<ModelFile> of(Array<char> image);  // just made: nothing to verify

    const FileFacts& facts() const { return facts_; }
    const std::string& path() const { return path_; }  // "" of an image
    std::uint64_t bytes() const { return all_.size(); }
    std::uint64_t mark() const { return mark_; }  // a digest of header and checksums: which file this is
    std::span<const char> section(std::uint32_t id) const;  // empty where there is none

    // Whoever is about to read calls this first: Failure where a mapped file changed since it was opened.
    void begin_call() const {
        if (is_mapped_) [[unlikely]]
            source_->check_unchanged();
    }
    bool is_mapped() const { return is_mapped_; }

    // Reads and verifies the blocks under these bytes of a section if they were not yet.
    void touch(const void* from, std::size_t size) const {
        if (!is_verified()) [[unlikely]]
            touch_blocks(from, size);
    }
    bool is_verified() const { return is_verified_.load(std::memory_order_acquire); }
    void verify_all(std::size_t threads) const;
    // So many words are about to be looked up. Once that were as many as the file has KiB, the rest of it is
    // verified: from then on nobody need ask, and it took no longer than the look-ups did.
    void asked(std::uint64_t words) const;

    // Sets the check of content, once and before anything is touched; blocks that were verified at opening
    // are checked now. It may outlive whoever sets it. An image is not checked.
    void on_verified(Check check);

    void save(const std::string& path) const;               // verified, and the same bytes; `path` is new
    [[noreturn]] void fail(const std::string& what) const;  // Failure: the file is damaged, and what to do

  private:
    void touch_blocks(const void* from, std::size_t size) const;
    struct Place {
        std::uint32_t id;
        std::uint64_t from, size;
    };

    ModelFile() = default;
    void take_bytes(std::uint64_t largest_copy, std::uint64_t verified_at_open);
    void read_header();
    void read_places(const char* at, std::uint32_t count, std::uint64_t header);
    void load(std::size_t block) const;  // reads and verifies it unless another thread did
    void verify(std::size_t block, const char* bytes) const;
    void check_content(std::size_t block) const;
    std::uint64_t block_end(std::size_t block) const;  // counted from data_

    std::string path_;
    std::unique_ptr<InputFile> source_;  // none once all of it was copied, nor of an image
    bool is_mapped_ = false;
    mutable Array<char> image_;  // the private copy, blocks of which are set once they are verified
    std::span<const char> all_;
    FileFacts facts_;
    std::vector<Place> places_;
    std::uint64_t mark_ = 0;
    const char* data_ = nullptr;       // block 0
    const char* checksums_ = nullptr;  // 8 bytes a block
    std::size_t blocks_ = 0;
    Check check_;
    mutable std::array<std::mutex, 64> loading_;  // block i is loaded under mutex i mod 64
    mutable std::unique_ptr<std::atomic<bool>[]> verified_;
    mutable std::atomic<std::size_t> left_{0};  // blocks that are not verified
    mutable std::atomic<std::uint64_t> asked_{0};
    mutable std::atomic<bool> is_verified_{false};
};

}  // namespace chainrule
