// The model file `model.ngram`: a header, and sections of bytes interpreted by a layout.
//
//   header: fixed part, rows per order, section table, a checksum per block, checksum of the header
//   blocks of 64 KiB, counted from the end of the header; sections lie in them, aligned to a cache line
//
// The file is copied into private memory (a small file when it is opened, a large one block by block on first
// access), and the copy is verified and read: later changes of the file have no effect. Any differing bit,
// also in the header, throws Error.
//
// A file too large to copy is mapped. Blocks are then verified in place, and each call checks that the file
// has not changed since it was opened (begin_call); a change during a call is not detected.
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

struct FileMetadata {
    LayoutKind layout = LayoutKind::fast;
    std::uint32_t bits = 0;  // 8: quantised; 0: full precision
    ModelMetadata model;
    std::vector<std::uint64_t> sizes;  // rows by order
};

inline constexpr std::uint64_t kBlock = 65536;   // bytes per checksum
inline constexpr std::uint64_t kCacheLine = 64;  // alignment of sections
inline constexpr std::uint64_t kVerifiedAtOpen = std::uint64_t{64}
                                                 << 20;  // files up to this size are verified when opened
inline constexpr std::uint32_t kMaxOrders = 1000;
inline constexpr std::uint32_t kMaxWords = 0x7FFFFFFF;
inline constexpr std::uint64_t kMaxRows =
    0xFFFFFFFE;  // of one order: a row and the one behind it fit 32 bits

// A section to be written. `fill` writes bytes [from, from + size) of it. It is called by several threads for
// ranges of about a megabyte that begin at multiples of `chunk` (a multiple of 8) and, but for the last,
// consist of whole chunks. It must write all of `into`.
struct Section {
    std::uint32_t id = 0;  // below 0x1000 if shared by all layouts (stored_vocabulary.hpp)
    std::uint64_t size = 0;
    std::uint64_t chunk = 65536;
    std::function<void(std::uint64_t from, std::uint64_t size, char* into)> fill;
    std::function<void()> prepare, done;  // optional: allocate and free memory of this section
};

// Writes a new file; it is on disk when this returns, and removed if this throws.
void write_model(const std::string& path, const FileMetadata& metadata, const std::vector<Section>& sections,
                 std::size_t threads);

// Builds the same bytes in memory.
UninitializedBuffer<char> model_image(const FileMetadata& metadata, const std::vector<Section>& sections,
                                      std::size_t threads);

// Immutable apart from the verification state; several threads may use one object.
class ModelFile {
  public:
    // Content check, called with verified bytes [from, to) of a section; throws Error if a layout could
    // not read them without leaving its sections. A block may contain parts of two sections, and a
    // section may begin and end within a block.
    using Check = std::function<void(std::uint32_t section, std::uint64_t from, std::uint64_t to)>;

    // A file of more than `largest_copy` bytes is mapped; 0 means half of the physical memory.
    static std::shared_ptr<ModelFile> open(const std::string& path, bool verify_all,
                                           std::uint64_t verified_at_open = kVerifiedAtOpen,
                                           std::uint64_t largest_copy = 0);
    static std::shared_ptr<ModelFile> of(UninitializedBuffer<char> image);  // trusted: no verification

    const FileMetadata& metadata() const { return metadata_; }
    const std::string& path() const { return path_; }  // "" for an in-memory image
    std::uint64_t bytes() const { return all_.size(); }
    std::uint64_t digest() const { return digest_; }  // digest of header and checksums, identifies the file
    std::span<const char> section(std::uint32_t id) const;  // empty if absent

    // Must be called before reading: throws Error if a mapped file changed since it was opened.
    void begin_call() const {
        if (is_mapped_) [[unlikely]]
            source_->check_unchanged();
    }
    bool is_mapped() const { return is_mapped_; }

    // Loads and verifies the blocks under these bytes if needed.
    void touch(const void* from, std::size_t size) const {
        if (!is_verified()) [[unlikely]]
            touch_blocks(from, size);
    }
    bool is_verified() const { return is_verified_.load(std::memory_order_acquire); }
    void verify_all(std::size_t threads) const;
    // Announces `words` lookups. Once there were as many lookups as the file has KiB, the rest of the
    // file is verified, after which touch() is free; this takes no longer than the lookups did.
    void count_lookups(std::uint64_t words) const;

    // Sets the content check, once and before any access; blocks verified when the file was opened are
    // checked now. The check may outlive its creator. An in-memory image is not checked.
    void on_verified(Check check);

    void save(const std::string& path) const;  // writes the verified bytes unchanged; `path` must not exist
    [[noreturn]] void fail(const std::string& what) const;  // throws: the file is damaged

  private:
    void touch_blocks(const void* from, std::size_t size) const;
    struct SectionRange {
        std::uint32_t id;
        std::uint64_t from, size;
    };

    ModelFile() = default;
    void take_bytes(std::uint64_t largest_copy, std::uint64_t verified_at_open);
    void read_header();
    void read_places(const char* at, std::uint32_t count, std::uint64_t header);
    void load(std::size_t block) const;  // reads and verifies a block once
    void verify(std::size_t block, const char* bytes) const;
    void check_content(std::size_t block) const;
    std::uint64_t block_end(std::size_t block) const;  // counted from data_

    std::string path_;
    std::unique_ptr<InputFile> source_;  // null once everything is copied, and for an image
    bool is_mapped_ = false;
    mutable UninitializedBuffer<char>
        image_;  // the private copy, blocks of which are set once they are verified
    std::span<const char> all_;
    FileMetadata metadata_;
    std::vector<SectionRange> section_ranges_;
    std::uint64_t digest_ = 0;
    const char* data_ = nullptr;       // block 0
    const char* checksums_ = nullptr;  // 8 bytes per block
    std::size_t blocks_ = 0;
    Check check_;
    mutable std::array<std::mutex, 64> loading_;  // block i is loaded under mutex i mod 64
    mutable std::unique_ptr<std::atomic<bool>[]> verified_;
    mutable std::atomic<std::size_t> left_{0};  // number of unverified blocks
    mutable std::atomic<std::uint64_t> lookups_{0};
    mutable std::atomic<bool> is_verified_{false};
};

}  // namespace chainrule
