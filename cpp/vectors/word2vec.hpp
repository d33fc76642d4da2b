// Skip-gram and CBOW with negative sampling (Mikolov et al. 2013); the products of a window are computed at
// once with shared noise words (Ji et al. 2016), on several threads without locks (Recht et al. 2011).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.hpp"
#include "vectors/kernels/kernels.hpp"
#include "vectors/negative_sampling.hpp"

namespace chainrule {

struct Word2vecConfig {
    bool is_cbow = false;
    std::size_t dimensions = 100;
    std::size_t window = 5;
    std::size_t negative = 5;
    std::size_t epochs = 5;
    float rate = 0.025F;        // decreases linearly …
    float last_rate = 2.5e-6F;  // … to this value
    double sample = 1e-3;       // subsampling threshold (relative frequency); 0: none
    double power = 0.75;        // exponent of the counts in the noise distribution
    std::size_t threads = 1;
    std::uint64_t seed = 0;
    std::string simd = "auto";
};

// Subword rows of each word: rows[begins[w]] … rows[begins[w + 1] − 1].
struct Subwords {
    std::vector<std::uint64_t> begins;
    std::vector<std::uint32_t> rows;
    std::size_t buckets = 0;  // number of subword rows, stored after the word rows
};

struct Word2vecProgress {
    std::uint64_t words;  // tokens processed, over all epochs
    std::uint64_t of;
    double loss;  // nats per word pair since the last call
    float rate;
};

// Not thread-safe: one call at a time.
class Word2vec {
  public:
    // `file` holds ids in text order, `number_of` the final id of each or −1, `counts` the count of each
    // final id. Throws Error if they are inconsistent.
    Word2vec(const Word2vecConfig& config, const std::string& file, std::uint64_t numbers,
             std::span<const std::int32_t> number_of, std::span<const std::uint64_t> counts,
             Subwords subwords);
    ~Word2vec();

    bool run(double seconds);  // trains for about `seconds`, at least one sentence; false when finished
    Word2vecProgress progress();
    double last_loss() const;                           // nats per word pair over the last or current epoch
    std::size_t words() const { return keep_.size(); }  // vocabulary size
    std::size_t dimensions() const { return config_.dimensions; }
    const char* simd() const { return kernels_.name; }
    std::size_t rows() const { return rows_; }
    std::size_t width() const { return width_; }  // of a row, including padding
    float* input() { return input_.data(); }
    void copy_output(std::vector<float>& into);  // (words, dimensions), without the padding
    // Ends training: frees what only training needs, and replaces the row of each word with subwords by
    // their mean.
    void finish();

  private:
    struct Worker;
    void fill_input();
    void make_workers();
    void work(Worker& worker, double seconds);
    void learn(Worker& worker);
    void subword_step(Worker& worker, Step step, std::size_t low, std::size_t high, std::size_t middle);
    void mean_of(std::size_t word, float* mean) const;
    bool take_part(Worker& worker);
    bool fill(Worker& worker);

    Word2vecConfig config_;
    const Kernels& kernels_;
    std::string file_;
    std::uint64_t numbers_, parts_;            // ids in the file; work items per epoch
    std::atomic<std::uint64_t> next_part_{0};  // work items started, over all epochs
    std::vector<std::int32_t> number_of_;
    std::vector<std::uint32_t> keep_;  // keep probability times kAlways
    Noise noise_;
    Subwords subwords_;
    std::size_t rows_, width_;
    AlignedFloats input_, output_;
    std::uint64_t total_ = 0;
    std::atomic<std::uint64_t> done_{0};
    bool is_finished_ = false;
    std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace chainrule
