// GloVe (Pennington et al. 2014): w_i · w̃_j + b_i + b̃_j ≈ log X_ij, squared errors weighted by f(X) =
// min(1, (X / x_max)^alpha), trained by AdaGrad on several threads without locks. Threads take blocks of the
// record file in order, so that all are in the same epoch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.hpp"
#include "vectors/kernels/kernels.hpp"

namespace chainrule {

struct GloveConfig {
    std::size_t dimensions = 100;
    std::size_t epochs = 15;
    float rate = 0.05F;
    double x_max = 10;
    double alpha = 0.75;
    std::size_t threads = 1;
    std::uint64_t seed = 0;
    std::string simd = "auto";
};

struct GloveProgress {
    std::uint64_t pairs;  // over all epochs
    std::uint64_t of;
    double cost;  // mean of f(X) (w · w̃ + b + b̃ − log X)² / 2 in the last full epoch; NaN before the
                  // first
};

class Glove {
  public:
    // `file` has `records` records of Cooccurrence in training order, over `words` words.
    Glove(const GloveConfig& config, const std::string& file, std::uint64_t records, std::size_t words);
    ~Glove();

    bool run(double seconds);  // trains for about `seconds`; false when finished
    GloveProgress progress() const;
    const char* simd() const { return kernels_.name; }
    std::size_t words() const { return words_; }
    std::size_t dimensions() const { return config_.dimensions; }
    void result(std::span<float> into) const;  // w + w̃, (words, dimensions)

  private:
    struct Worker;
    void work(Worker& worker, double seconds);
    void learn(Worker& worker);
    bool fill(Worker& worker);
    float* word(std::size_t number) const { return rows_ + number * 4 * width_; }
    float* context(std::size_t number) const { return word(number) + 2 * width_; }

    GloveConfig config_;
    const Kernels& kernels_;
    std::string file_;
    std::uint64_t records_;
    std::size_t block_ = 0;               // records per block
    std::uint64_t blocks_ = 0;            // blocks per epoch
    std::atomic<std::uint64_t> next_{0};  // next block, counted over all epochs
    std::size_t words_, width_;           // width: vector, bias, padding
    AlignedFloats weights_;               // per word: w, AdaGrad sums of w, w̃, AdaGrad sums of w̃
    float* rows_;
    std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace chainrule
