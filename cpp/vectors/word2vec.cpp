#include "vectors/word2vec.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "vectors/corpus.hpp"
#include "vectors/padded_rows.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kBlock = 1 << 15;         // ids read at a time
constexpr std::size_t kPart = 1 << 14;          // ids per work item
constexpr std::size_t kMaxSentence = 1000;      // maximum words per sentence; longer ones are split
constexpr std::uint64_t kRateEvery = 10000;     // words between updates of the learning rate
constexpr std::uint64_t kLossEvery = 16;        // windows between two loss measurements
constexpr std::size_t kMaxSetting = 1 << 16;    // upper bound of each integer setting
constexpr std::uint32_t kAlways = 0xFFFFFFFFU;  // a word that is never subsampled

// Validates what training relies on.
void check(const Word2vecConfig& config, std::span<const std::int32_t> number_of, std::size_t words,
           const Subwords& subwords) {
    const auto require = [](bool is_valid, const char* what) {
        if (!is_valid) throw ArgumentError(what);
    };
    require(words > 0, "there are no words to learn vectors of");
    require(config.dimensions > 0 && config.dimensions <= kMaxSetting, "dimensions must be from 1 to 65536");
    require(config.window > 0 && config.window <= kMaxSetting, "window must be from 1 to 65536");
    require(config.negative <= kMaxSetting, "negative must be from 0 to 65536");
    require(config.epochs > 0 && config.threads > 0, "epochs and threads must be at least 1");
    require(config.threads <= kMaxSetting, "threads must be at most 65536");
    require(config.rate > 0 && std::isfinite(config.rate), "the learning rate must be above 0");
    for (const std::int32_t number : number_of) {
        require(number >= -1 && number < static_cast<std::int64_t>(words),
                "number_of contains an id that is out of range");
    }
    require(subwords.buckets <= std::numeric_limits<std::uint32_t>::max() - words,
            "there are too many buckets");
    if (subwords.begins.empty()) return require(subwords.rows.empty(), "rows of subwords need begins");
    require(subwords.begins.size() == words + 1,
            "begins of subwords must have one more than there are words");
    require(subwords.begins.front() == 0 && subwords.begins.back() == subwords.rows.size(),
            "begins of subwords must go from 0 to the number of rows");
    require(std::is_sorted(subwords.begins.begin(), subwords.begins.end()), "begins of subwords must rise");
    for (const std::uint32_t row : subwords.rows) {
        require(row >= words && row - words < subwords.buckets, "a row of subwords is none of the buckets");
    }
}

}  // namespace

// Per-thread state between calls of `run`, on separate cache lines.
struct alignas(128) Word2vec::Worker {
    Worker(const std::string& file, std::uint64_t seed) : numbers(file), random(seed) {}

    // Adds the loss of a window; the first window of an epoch resets it.
    void count(double of_window, std::uint64_t of_pairs) {
        if (windows == 1) epoch_loss = 0, epoch_pairs = 0;
        loss += of_window;
        pairs += of_pairs;
        epoch_loss += of_window;
        epoch_pairs += of_pairs;
    }

    WordIdFile numbers;
    Random random;
    NoisePool pool;                  // used with several threads
    std::uint64_t at = 0, last = 0;  // next index of the current part of the file, and its end
    std::size_t epoch = 0;
    std::vector<std::int32_t> block;
    std::size_t block_at = 0, block_size = 0;
    std::vector<std::uint32_t> sentence;
    std::vector<std::uint32_t> targets, following;  // targets of this window and of the next
    std::size_t reach = 0, following_reach = 0;
    std::vector<float*> x, y;
    AlignedFloats scratch, mixed;  // mixed: words composed of subwords, before and after the update
    std::uint64_t words_read = 0, words_reported = 0, windows = 0;
    float rate = 0;
    double loss = 0;
    std::uint64_t pairs = 0;  // number of pairs in the loss
    double epoch_loss = 0;    // loss since the start of the epoch
    std::uint64_t epoch_pairs = 0;
    bool is_finished = false;
    std::exception_ptr error;
};

Word2vec::Word2vec(const Word2vecConfig& config, const std::string& file, std::uint64_t numbers,
                   std::span<const std::int32_t> number_of, std::span<const std::uint64_t> counts,
                   Subwords subwords)
    : config_((check(config, number_of, counts.size(), subwords), config)),
      kernels_(choose_kernels(config.simd)),
      file_(file),
      numbers_(numbers),
      parts_(config.threads == 1 ? 1 : numbers / kPart + 1),
      number_of_(number_of.begin(), number_of.end()),
      noise_(weights_of(counts, config.power)),
      subwords_(std::move(subwords)),
      rows_(counts.size() + subwords_.buckets),
      width_(padded(config.dimensions)),
      input_(rows_, width_),
      output_(counts.size(), width_) {
    std::uint64_t words = 0;
    for (const std::uint64_t n : counts) words += n;
    total_ = words * config.epochs;
    for (const std::uint64_t n : counts) {
        const double f =
            config.sample > 0 ? static_cast<double>(n) / (config.sample * static_cast<double>(words)) : 0;
        const double keep = f > 0 ? (std::sqrt(f) + 1) / f : 1;
        keep_.push_back(keep >= 1 ? kAlways : static_cast<std::uint32_t>(keep * kAlways));
    }
    fill_input();
    make_workers();
}

void Word2vec::fill_input() {
    Random random(config_.seed);
    const float scale = 1.0F / static_cast<float>(config_.dimensions);
    for (std::size_t row = 0; row < rows_; ++row) {
        for (std::size_t i = 0; i < config_.dimensions; ++i) {
            input_.data()[row * width_ + i] =
                (static_cast<float>(random.next() >> 8) / 16777216.0F - 0.5F) * scale;
        }
    }
}

void Word2vec::make_workers() {
    const std::size_t most = 2 * config_.window, threads = config_.threads;
    const bool has_parts = !subwords_.begins.empty();
    for (std::size_t i = 0; i < threads; ++i) {
        auto worker = std::make_unique<Worker>(file_, config_.seed + ((i + 1) << 32));
        worker->block.resize(kBlock);
        worker->rate = config_.rate;
        worker->scratch = AlignedFloats(kGroup * most + 2 * width_ + kGroup);
        if (has_parts && !config_.is_cbow) worker->mixed = AlignedFloats(2 * most * width_);
        workers_.push_back(std::move(worker));
    }
}

Word2vec::~Word2vec() = default;

bool Word2vec::run(double seconds) {
    if (is_finished_)
        throw ArgumentError(
            "training is finished and the output vectors were released; create a new trainer");
    run_on_threads(workers_.size(), [&](std::size_t i) { work(*workers_[i], seconds); });
    bool is_more = false;
    for (const auto& worker : workers_) {
        if (worker->error) std::rethrow_exception(worker->error);
        is_more |= !worker->is_finished;
    }
    return is_more;
}

Word2vecProgress Word2vec::progress() {
    double loss = 0;
    std::uint64_t pairs = 0, words = done_;
    for (const auto& worker : workers_) {
        loss += worker->loss;
        pairs += worker->pairs;
        words += worker->words_read - worker->words_reported;
        worker->loss = 0;
        worker->pairs = 0;
    }
    return {words, total_, pairs ? loss / static_cast<double>(pairs) : 0, workers_[0]->rate};
}

double Word2vec::last_loss() const {
    double loss = 0;
    std::uint64_t pairs = 0;
    for (const auto& worker : workers_) {
        loss += worker->epoch_loss;
        pairs += worker->epoch_pairs;
    }
    return pairs ? loss / static_cast<double>(pairs) : 0;
}

void Word2vec::copy_output(std::vector<float>& into) {
    if (is_finished_) throw ArgumentError("the output vectors were released after training");
    into.reserve(words() * config_.dimensions);
    for (std::size_t row = 0; row < words(); ++row) {
        const float* first = output_.data() + row * width_;
        into.insert(into.end(), first, first + config_.dimensions);
    }
}

void Word2vec::finish() {
    if (is_finished_) return;
    is_finished_ = true;
    output_ = AlignedFloats();
    number_of_ = {};
    if (!subwords_.begins.empty()) {
        for (std::size_t word = 0; word < words(); ++word) mean_of(word, input_.data() + word * width_);
    }
    subwords_ = {};
}

void Word2vec::work(Worker& worker, double seconds) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    try {
        do {
            worker.is_finished = worker.is_finished || !fill(worker);
            if (!worker.is_finished) learn(worker);
        } while (!worker.is_finished && Clock::now() < end);
    } catch (...) {
        worker.error = std::current_exception();
        worker.is_finished = true;
    }
}

// Takes the next unread part of the file in this epoch; false after the last epoch. Faster threads take more
// parts, so that all finish together.
bool Word2vec::take_part(Worker& worker) {
    const std::uint64_t part = next_part_++;
    const std::size_t epoch = part / parts_;
    if (epoch >= config_.epochs) return false;
    if (epoch != worker.epoch) worker.windows = 0;
    worker.epoch = epoch;
    worker.at = part_begin(numbers_, part % parts_, parts_);
    worker.last = part_begin(numbers_, part % parts_ + 1, parts_);
    return true;
}

// Reads the next sentence with frequent words subsampled; false after the last epoch.
bool Word2vec::fill(Worker& worker) {
    worker.sentence.clear();
    while (true) {
        if (worker.block_at == worker.block_size) {
            if (worker.at == worker.last) {
                if (!worker.sentence.empty()) return true;
                if (!take_part(worker)) return false;
            }
            worker.block.resize(std::min<std::uint64_t>(kBlock, worker.last - worker.at));
            worker.block_size = worker.numbers.read(worker.at, worker.block);
            if (worker.block_size != worker.block.size())
                throw IoError(file_ + " was truncated while it was being read; run the command again");
            worker.at += worker.block_size;
            worker.block_at = 0;
        }
        const std::int32_t id = worker.block[worker.block_at++];
        if (id == kSentenceEnd) {
            if (!worker.sentence.empty()) return true;
            continue;
        }
        if (static_cast<std::size_t>(id) >= number_of_.size())
            throw IoError(file_ + " contains a word id that is out of range");
        const std::int32_t word = number_of_[static_cast<std::size_t>(id)];
        if (word < 0) continue;
        ++worker.words_read;
        const std::uint32_t keep = keep_[static_cast<std::size_t>(word)];
        if (keep != kAlways && worker.random.next() > keep) continue;
        worker.sentence.push_back(static_cast<std::uint32_t>(word));
        if (worker.sentence.size() == kMaxSentence) return true;
    }
}

void Word2vec::learn(Worker& w) {
    if (w.words_read - w.words_reported >= kRateEvery) {
        const std::uint64_t done = done_ += w.words_read - w.words_reported;
        w.words_reported = w.words_read;
        const float left =
            1.0F - static_cast<float>(static_cast<double>(done) / static_cast<double>(total_ + 1));
        w.rate = std::max(config_.last_rate, config_.rate * left);
    }
    const auto input_of = [&](std::uint32_t word) { return input_.data() + word * width_; };
    const auto output_of = [&](std::uint32_t word) { return output_.data() + word * width_; };
    const std::size_t n = w.sentence.size();
    const bool has_pool = config_.is_cbow && workers_.size() > 1;  // skip-gram spends more time per row
    const auto prepare = [&](std::size_t i) {  // draws the window size and noise words of word i
        const std::uint32_t word = w.sentence[i];
        w.following_reach = config_.window - w.random.below(static_cast<std::uint32_t>(config_.window));
        w.following.assign(1, word);
        prefetch(output_of(word), width_);
        if (i + config_.window + 1 < n) prefetch(input_of(w.sentence[i + config_.window + 1]), width_);
        for (std::size_t k = 0; k < config_.negative; ++k) {
            const std::uint32_t other = has_pool ? w.pool.draw(noise_, w.random) : noise_.draw(w.random);
            if (std::find(w.following.begin(), w.following.end(), other) != w.following.end()) continue;
            w.following.push_back(other);
            prefetch(output_of(other), width_);
        }
    };
    prepare(0);
    for (std::size_t i = 0; i < n; ++i) {
        std::swap(w.targets, w.following);
        w.reach = w.following_reach;
        if (i + 1 < n) prepare(i + 1);
        const std::size_t low = i > w.reach ? i - w.reach : 0, high = std::min(n - 1, i + w.reach);
        if (low == high) continue;
        w.x.clear();
        const bool has_parts = !subwords_.begins.empty();
        for (std::size_t j = low; j <= high; ++j) {
            if (j == i) continue;
            const std::uint32_t word = w.sentence[j];
            w.x.push_back(input_of(word));
            if (!has_parts || !config_.is_cbow) continue;
            for (std::uint64_t p = subwords_.begins[word]; p < subwords_.begins[word + 1]; ++p) {
                w.x.push_back(input_.data() + subwords_.rows[p] * width_);
            }
        }
        w.y.clear();
        for (const std::uint32_t target : w.targets) w.y.push_back(output_of(target));
        const bool is_counted = w.windows++ % kLossEvery == 0;
        double loss = 0;
        Step step{w.x.data(), w.x.size(), w.y.data(),       w.y.size(),
                  width_,     w.rate,     w.scratch.data(), is_counted ? &loss : nullptr};
        if (config_.is_cbow) {
            kernels_.bag(step);
        } else if (has_parts) {
            subword_step(w, step, low, high, i);
        } else {
            kernels_.window(step);
        }
        if (is_counted) w.count(loss, config_.is_cbow ? 1 : high - low);
    }
}

// Mean of the rows of a word and its subwords; `mean` may alias the row of the word.
void Word2vec::mean_of(std::size_t word, float* mean) const {
    const std::uint64_t begin = subwords_.begins[word], end = subwords_.begins[word + 1];
    const float* own = input_.data() + word * width_;
    if (mean != own) std::copy_n(own, width_, mean);
    for (std::uint64_t p = begin; p < end; ++p) {
        const float* part = input_.data() + subwords_.rows[p] * width_;
        for (std::size_t i = 0; i < width_; ++i) mean[i] += part[i];
    }
    const float share = 1.0F / static_cast<float>(end - begin + 1);
    for (std::size_t i = 0; i < width_; ++i) mean[i] *= share;
}

// Words with subwords: the mean of the rows represents the word, and each row receives the whole gradient.
void Word2vec::subword_step(Worker& w, Step step, std::size_t low, std::size_t high, std::size_t middle) {
    const std::size_t n = step.rows;
    float* before = w.mixed.data();
    float* after = before + n * width_;
    std::size_t a = 0;
    for (std::size_t j = low; j <= high; ++j) {
        if (j == middle) continue;
        float* mean = before + a * width_;
        mean_of(w.sentence[j], mean);
        std::copy_n(mean, width_, after + a * width_);
        w.x[a] = after + a * width_;
        ++a;
    }
    kernels_.window(step);
    a = 0;
    for (std::size_t j = low; j <= high; ++j) {
        if (j == middle) continue;
        const std::uint32_t word = w.sentence[j];
        float* step_of = after + a * width_;
        for (std::size_t i = 0; i < width_; ++i) step_of[i] -= before[a * width_ + i];
        const auto add_to = [&](std::size_t row) {
            float* into = input_.data() + row * width_;
            for (std::size_t i = 0; i < width_; ++i) into[i] += step_of[i];
        };
        add_to(word);
        for (std::uint64_t p = subwords_.begins[word]; p < subwords_.begins[word + 1]; ++p)
            add_to(subwords_.rows[p]);
        ++a;
    }
}

}  // namespace chainrule
