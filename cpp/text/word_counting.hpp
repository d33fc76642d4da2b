// Counts of the words of a text in bounded memory: tables that are full are written to a temporary file,
// divided by hash, and the counts of each part are added up at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/spill_file.hpp"
#include "text/vocabulary.hpp"
#include "text/words.hpp"

namespace chainrule {

// Memory of all tables in bytes, 0: unlimited; and the folder of the temporary file.
struct CountingLimit {
    std::uint64_t bytes = 0;
    std::string folder;
};

class WordCounting {
  public:
    static constexpr std::size_t kParts = 64;

    WordCounting(std::size_t threads, const CountingLimit& limit);

    // Adds a word; calls with different threads may run at the same time.
    void add(std::size_t thread, const Word& word, std::uint64_t times = 1) {
        WordCounter& counter = counters_[thread];
        if (counter.counts.size() >= max_words_ || counter.words.letters() >= max_letters_) [[unlikely]]
            spill(thread);
        counter.add(word, times);
    }

    // No word may be added afterwards.
    void finish();
    // Calls visit(word, count) for each word, in an order that depends on the threads.
    void for_each(const CountedWords::Visit& visit) const;
    std::uint64_t spilled_bytes() const { return end_ * 4; }

  private:
    struct Segment {
        std::size_t part;
        std::uint64_t begin, end;  // in the file, in 32-bit numbers
    };
    void spill(std::size_t thread);

    std::vector<WordCounter> counters_;
    std::size_t max_words_ = 0xFFFFFFFF, max_letters_ = static_cast<std::size_t>(-1);  // of a table
    std::shared_ptr<const SpillFolder> folder_;
    std::mutex mutex_;
    SpillFile file_;
    std::uint64_t end_ = 0;
    std::vector<Segment> segments_;
};

}  // namespace chainrule
