#include "vectors/glove.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <exception>
#include <fstream>
#include <limits>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/random.hpp"
#include "vectors/cooccurrence.hpp"
#include "vectors/padded_rows.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kBlock = 1 << 14;      // maximum records read at a time
constexpr std::size_t kTimeCheck = 1 << 11;  // records between two time checks
constexpr std::size_t kAhead = 4;            // prefetch distance in records
constexpr std::size_t kKnown = 1 << 10;      // counts whose weight and logarithm are cached

// Caches f(X) and log X: most counts are one of a few values, such as 1/2 or 1/5.
class Weights {
  public:
    struct Weight {
        float x = 0;
        float weight = 0;
        float log_x = 0;
    };

    Weights(double x_max, double alpha) : x_max_(x_max), alpha_(alpha) {}

    const Weight& operator()(float x) {
        Weight& known = known_[(std::bit_cast<std::uint32_t>(x) * 0x9E3779B1U) >> 22];
        if (known.x != x) {
            const double share = static_cast<double>(x) / x_max_;
            known.x = x;
            known.weight = static_cast<float>(share < 1 ? std::pow(share, alpha_) : 1);
            known.log_x = static_cast<float>(std::log(static_cast<double>(x)));
        }
        return known;
    }

  private:
    static_assert(kKnown == 1U << (32 - 22));
    double x_max_, alpha_;
    std::array<Weight, kKnown> known_;
};

// Validates what training relies on.
void check(const GloveConfig& config) {
    constexpr std::size_t most = 1 << 16;
    if (config.dimensions == 0 || config.threads == 0)
        throw ArgumentError("dimensions and threads must be at least 1");
    if (config.dimensions > most) throw ArgumentError("dimensions must be at most 65536");
    if (config.threads > most) throw ArgumentError("threads must be at most 65536");
}

}  // namespace

// Per-thread state between calls of `run`.
struct Glove::Worker {
    Worker(const std::string& file, const GloveConfig& config)
        : in(file, std::ios::binary), weights(config.x_max, config.alpha), costs(config.epochs) {}

    std::ifstream in;
    Weights weights;
    std::vector<Record> block;
    std::size_t at = 0;         // position within the block
    std::size_t epoch = 0;      // epoch of the block; past the last epoch if none is left
    std::vector<double> costs;  // summed cost of each epoch
    std::uint64_t pairs = 0;
    bool is_finished = false;
    std::exception_ptr error;
};

Glove::Glove(const GloveConfig& config, const std::string& file, std::uint64_t records, std::size_t words)
    : config_((check(config), config)),
      kernels_(choose_kernels(config.simd)),
      file_(file),
      records_(records),
      words_(words),
      width_(padded(config.dimensions + 1)),
      weights_(words, 4 * width_),
      rows_(weights_.data()) {
    Random random(config.seed);
    const float scale = 1.0F / static_cast<float>(config.dimensions + 1);
    for (std::size_t number = 0; number < words_; ++number) {
        for (float* row : {word(number), context(number)}) {
            for (std::size_t i = 0; i <= config.dimensions; ++i) {
                row[i] = (static_cast<float>(random.next() >> 8) / 16777216.0F - 0.5F) * scale;
            }
            std::fill_n(row + width_, width_,
                        1.0F);  // also in the padding, because of the division by the root
        }
    }
    // All threads have work in every epoch. With one thread the order does not depend on the block size.
    block_ = std::clamp<std::uint64_t>(records / (8 * config.threads), 1, kBlock);
    blocks_ = (records + block_ - 1) / block_;
    for (std::size_t i = 0; i < config.threads; ++i) {
        auto worker = std::make_unique<Worker>(file, config);
        if (!worker->in) throw IoError(file + " cannot be read");
        workers_.push_back(std::move(worker));
    }
}

Glove::~Glove() = default;

bool Glove::run(double seconds) {
    run_on_threads(workers_.size(), [&](std::size_t i) { work(*workers_[i], seconds); });
    bool is_more = false;
    for (const auto& worker : workers_) {
        if (worker->error) std::rethrow_exception(worker->error);
        is_more |= !worker->is_finished;
    }
    return is_more;
}

GloveProgress Glove::progress() const {
    std::uint64_t pairs = 0;
    std::size_t epochs = config_.epochs;
    for (const auto& worker : workers_) {
        pairs += worker->pairs;
        epochs = std::min(epochs, worker->epoch);
    }
    double cost = std::numeric_limits<double>::quiet_NaN();
    if (epochs > 0 && records_ > 0) {
        cost = 0;
        for (const auto& worker : workers_) cost += worker->costs[epochs - 1];
        cost /= static_cast<double>(records_);
    }
    return {pairs, records_ * config_.epochs, cost};
}

void Glove::result(std::span<float> into) const {
    const std::size_t D = config_.dimensions;
    if (into.size() != words_ * D)
        throw ArgumentError("the vectors need " + std::to_string(words_ * D) + " values");
    for (std::size_t number = 0; number < words_; ++number) {
        const float *w = word(number), *v = context(number);
        for (std::size_t i = 0; i < D; ++i) into[number * D + i] = w[i] + v[i];
    }
}

void Glove::work(Worker& worker, double seconds) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    try {
        while (!worker.is_finished) {
            if (worker.at < worker.block.size() || fill(worker)) {
                learn(worker);
            } else {
                worker.is_finished = true;
            }
            if (Clock::now() >= end) break;
        }
    } catch (...) {
        worker.error = std::current_exception();
        worker.is_finished = true;
    }
}

// Takes the next block of records; false after the last epoch.
bool Glove::fill(Worker& worker) {
    const std::uint64_t block_number = next_.fetch_add(1, std::memory_order_relaxed);
    worker.epoch = blocks_ ? std::min<std::uint64_t>(block_number / blocks_, config_.epochs) : config_.epochs;
    if (worker.epoch == config_.epochs) return false;
    const std::uint64_t first = block_number % blocks_ * block_;
    worker.block.resize(std::min<std::uint64_t>(block_, records_ - first));
    worker.in.clear();
    worker.in.seekg(static_cast<std::streamoff>(first * sizeof(Record)));
    worker.in.read(reinterpret_cast<char*>(worker.block.data()),
                   static_cast<std::streamsize>(worker.block.size() * sizeof(Record)));
    if (!worker.in) throw IoError(file_ + " was truncated while it was being read; run the command again");
    const auto words = static_cast<std::uint64_t>(words_);
    for (const Record& record : worker.block) {
        const auto i = static_cast<std::uint32_t>(record.i), j = static_cast<std::uint32_t>(record.j);
        if (i >= words || j >= words || !(record.x > 0))
            throw IoError(file_ + " does not contain the co-occurrence counts of this vocabulary");
    }
    worker.at = 0;
    return true;
}

void Glove::learn(Worker& worker) {
    const std::vector<Record>& block = worker.block;
    const std::size_t begin = worker.at, end = std::min(block.size(), begin + kTimeCheck);
    double cost = 0;
    for (std::size_t at = begin; at < end; ++at) {
        if (at + kAhead < block.size()) {
            const Record& ahead = block[at + kAhead];
            prefetch(word(static_cast<std::size_t>(ahead.i)), 2 * width_);
            prefetch(context(static_cast<std::size_t>(ahead.j)), 2 * width_);
        }
        const Record& record = block[at];
        const Weights::Weight& known = worker.weights(record.x);
        float* w = word(static_cast<std::size_t>(record.i));
        float* v = context(static_cast<std::size_t>(record.j));
        cost += static_cast<double>(kernels_.fit({w, v, w + width_, v + width_, width_, config_.dimensions,
                                                  known.weight, known.log_x, config_.rate}));
    }
    worker.at = end;
    worker.pairs += end - begin;
    worker.costs[worker.epoch] += cost;
}

}  // namespace chainrule
