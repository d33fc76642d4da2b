#include "ngram/format/quantize.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/logarithm.hpp"
#include "base/parallel.hpp"

namespace chainrule {

namespace {

constexpr std::uint32_t kSign = 0x80000000U, kInfinity = 0x7F800000U;
constexpr std::uint32_t kFree = 0x7FFFFFFFU;  // a NaN bit pattern, marks a free slot
constexpr std::array<std::uint32_t, 4> kExact = {0, kSign, kInfinity, kSign | kInfinity};
constexpr unsigned kCodeBits = 8, kLowerBits = 14;
constexpr std::size_t kBins = std::size_t{1} << (32 - kLowerBits);
constexpr std::uint32_t kLower = (1U << kLowerBits) - 1;

std::size_t home_of(std::uint32_t value, std::size_t slots) {  // slots is a power of 2
    return (value * 0x9E3779B97F4A7C15ULL >> 32) & (slots - 1);
}

// Index in kExact, or its size if absent.
std::size_t exact_number(std::uint32_t value) {
    return static_cast<std::size_t>(std::find(kExact.begin(), kExact.end(), value) - kExact.begin());
}

bool is_exact(std::uint32_t value) { return (value << 1) == 0 || (value & ~kSign) == kInfinity; }

// Integer with the same order as the floats.
std::uint32_t rank_of(std::uint32_t value) { return value & kSign ? ~value : value | kSign; }

double value_at(std::uint32_t rank) { return std::bit_cast<float>(rank & kSign ? rank & ~kSign : ~rank); }

// A histogram bin: count and mean.
struct Group {
    std::uint32_t bin;
    double count, mean;
};

// Initial cluster boundaries: point density proportional to the cube root of the data density, which is
// optimal for many clusters (Panter and Dite 1951).
std::vector<std::size_t> first_cuts(const std::vector<Group>& groups, std::size_t parts) {
    std::vector<double> upto(groups.size() + 1, 0);
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const double width =
            (groups[std::min(i + 1, groups.size() - 1)].mean - groups[i > 0 ? i - 1 : 0].mean) / 2;
        upto[i + 1] = upto[i] + std::cbrt(groups[i].count * width * width);
    }
    std::vector<std::size_t> cuts(parts + 1, groups.size());
    for (std::size_t k = 0; k < parts; ++k) {
        const double mass = upto.back() * static_cast<double>(k) / static_cast<double>(parts);
        cuts[k] = static_cast<std::size_t>(std::lower_bound(upto.begin(), upto.end(), mass) - upto.begin());
    }
    return cuts;
}

// Mean of each cluster; an empty cluster takes the previous mean.
std::vector<double> means_of(const std::vector<Group>& groups, const std::vector<std::size_t>& cuts) {
    std::vector<double> means;
    for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
        double count = 0, sum = 0;
        for (std::size_t i = cuts[k]; i < cuts[k + 1]; ++i) {
            count += groups[i].count;
            sum += groups[i].count * groups[i].mean;
        }
        means.push_back(count > 0 ? sum / count : means.empty() ? groups.front().mean : means.back());
    }
    return means;
}

// Boundaries that assign each bin to the nearest mean.
std::vector<std::size_t> nearest_cuts(const std::vector<Group>& groups, const std::vector<double>& means) {
    std::vector<std::size_t> cuts(means.size() + 1, groups.size());
    cuts[0] = 0;
    std::size_t i = 0;
    for (std::size_t k = 1; k < means.size(); ++k) {
        const double middle = (means[k - 1] + means[k]) / 2;
        while (i < groups.size() && groups[i].mean < middle) ++i;
        cuts[k] = i;
    }
    return cuts;
}

// Lloyd's algorithm: assign bins to the nearest mean, recompute the means.
std::vector<double> best_means(const std::vector<Group>& groups, std::size_t parts) {
    constexpr int steps = 60;
    std::vector<double> means = means_of(groups, first_cuts(groups, parts));
    for (int step = 0; step < steps; ++step) means = means_of(groups, nearest_cuts(groups, means));
    return means;
}

}  // namespace

std::uint32_t ColumnCodes::code(float number) const {
    const std::uint32_t value = std::bit_cast<std::uint32_t>(number);
    if (coding == ColumnCoding::plain) return value;
    if (coding == ColumnCoding::signless) return value & kSign ? value & ~kSign : kFree;
    if (!near_code_.empty() && !is_exact(value)) return near_code_[rank_of(value) >> kLowerBits];
    for (std::size_t i = home_of(value, slots_.size());; i = (i + 1) & (slots_.size() - 1)) {
        if (slots_[i].value == value) return slots_[i].code;
        if (slots_[i].value == kFree) throw Error("a model's numbers changed while they were written");
    }
}

void ColumnCodes::find_exactly(const std::vector<std::uint32_t>& values) {
    slots_.assign(std::bit_ceil(2 * values.size() + 2), {kFree, 0});
    for (std::size_t k = 0; k < values.size(); ++k) {
        std::size_t i = home_of(values[k], slots_.size());
        while (slots_[i].value != kFree) i = (i + 1) & (slots_.size() - 1);
        slots_[i] = {values[k], static_cast<std::uint32_t>(k)};
    }
}

ColumnStatistics::ColumnStatistics(bool is_quantized)
    : is_quantized_(is_quantized),
      most_different_(std::size_t{1} << (is_quantized ? kCodeBits : kMaxTableBits)),
      slots_(1024, kFree),
      bins_(is_quantized ? kBins : 0) {}

void ColumnStatistics::add(std::span<const float> values) {
    count_ += values.size();
    for (const float number : values) {
        const std::uint32_t value = std::bit_cast<std::uint32_t>(number);
        if ((value & ~kSign) > kInfinity)
            throw ArgumentError("a model contains a value that is not a number");
        can_drop_sign_ &= value == 0 || (value & kSign) != 0;
        if (!slots_.empty()) add_different(value);
        if (!is_quantized_) continue;
        if (is_exact(value)) {
            exact_ |= 1U << exact_number(value);
        } else {
            Bin& bin = bins_[rank_of(value) >> kLowerBits];
            ++bin.count;
            bin.lower += rank_of(value) & kLower;
        }
    }
}

void ColumnStatistics::add_different(std::uint32_t value) {
    std::size_t i = home_of(value, slots_.size());
    while (slots_[i] != kFree && slots_[i] != value) i = (i + 1) & (slots_.size() - 1);
    if (slots_[i] == value) return;
    slots_[i] = value;
    if (++different_ > most_different_) {
        slots_ = {};
    } else if (2 * different_ > slots_.size()) {
        grow();
    }
}

void ColumnStatistics::grow() {
    std::vector<std::uint32_t> old(2 * slots_.size(), kFree);
    std::swap(old, slots_);
    different_ = 0;
    for (const std::uint32_t value : old)
        if (value != kFree) add_different(value);
}

void ColumnStatistics::join(const ColumnStatistics& other) {
    count_ += other.count_;
    can_drop_sign_ &= other.can_drop_sign_;
    exact_ |= other.exact_;
    if (other.slots_.empty()) slots_ = {};
    for (const std::uint32_t value : other.slots_)
        if (value != kFree && !slots_.empty()) add_different(value);
    for (std::size_t i = 0; i < bins_.size(); ++i) {
        bins_[i].count += other.bins_[i].count;
        bins_[i].lower += other.bins_[i].lower;
    }
}

ColumnCodes ColumnStatistics::codes() const {
    ColumnCodes result;
    result.bits = can_drop_sign_ ? kSignlessBits : kPlainBits;
    result.coding = can_drop_sign_ ? ColumnCoding::signless : ColumnCoding::plain;
    if (slots_.empty()) return is_quantized_ ? quantized() : result;
    const unsigned bits = different_ > 1 ? static_cast<unsigned>(std::bit_width(different_ - 1)) : 0;
    if (count_ * (result.bits - bits) <= (std::uint64_t{kPlainBits} << bits))
        return result;  // no bits are saved
    std::vector<std::uint32_t> values;
    for (const std::uint32_t value : slots_)
        if (value != kFree) values.push_back(value);
    std::sort(values.begin(), values.end());
    result.coding = ColumnCoding::table;
    result.bits = bits;
    for (const std::uint32_t value : values) result.table.push_back(std::bit_cast<float>(value));
    result.table.resize(std::size_t{1} << bits, result.table.back());
    result.find_exactly(values);
    return result;
}

std::vector<float> ColumnStatistics::codebook() const {
    std::vector<float> values;
    if (slots_.empty()) {
        values = quantized().table;
    } else {
        for (const std::uint32_t value : slots_)
            if (value != kFree) values.push_back(std::bit_cast<float>(value));
    }
    for (float& value : values) value += 0.0F;  // −0 is 0
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
}

ColumnCodes ColumnStatistics::quantized() const {
    ColumnCodes result;
    result.coding = ColumnCoding::table;
    result.bits = kCodeBits;
    std::vector<std::uint32_t> exact;
    for (std::size_t k = 0; k < kExact.size(); ++k)
        if (exact_ >> k & 1U) exact.push_back(kExact[k]);
    for (const std::uint32_t value : exact) result.table.push_back(std::bit_cast<float>(value));
    result.find_exactly(exact);
    std::vector<Group> groups;
    for (std::uint32_t b = 0; b < bins_.size(); ++b) {
        if (!bins_[b].count) continue;
        // Floats of a bin share their exponent, so they are equally spaced.
        const double count = static_cast<double>(bins_[b].count), least = value_at(b << kLowerBits);
        const double step = (value_at(b << kLowerBits | kLower) - least) / kLower;
        groups.push_back({b, count, least + step * (static_cast<double>(bins_[b].lower) / count)});
    }
    const std::size_t parts = (std::size_t{1} << kCodeBits) - exact.size();
    const std::vector<double> means = best_means(groups, parts);
    const std::vector<std::size_t> cuts = nearest_cuts(groups, means);
    for (const double mean : means) result.table.push_back(static_cast<float>(mean));
    result.near_code_.assign(kBins, 0);
    for (std::size_t k = 0; k < parts; ++k)
        for (std::size_t i = cuts[k]; i < cuts[k + 1]; ++i)
            result.near_code_[groups[i].bin] = static_cast<std::uint8_t>(exact.size() + k);
    return result;
}

namespace {

constexpr std::uint64_t kPiece = 4096;      // contexts or rows per work item
constexpr std::uint32_t kChildren = 65536;  // children read at a time
constexpr double kGrid = 1024;              // quantisation steps per nat of a weight
constexpr double kSumTolerance = 2e-4;      // for probabilities that must sum to one without a weight
constexpr double kMinOthers = 1e-7;         // smallest remaining probability that a weight can scale
constexpr double kMaxFromRounding = 1e-5;   // largest mass that a weight may add below that

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

// Calls work(from, count) for pieces of `size` rows on several threads; `make` creates the worker of each
// thread.
template <class Make>
void for_pieces(std::uint64_t size, std::size_t threads, const Make& make) {
    const std::uint64_t pieces = (size + kPiece - 1) / kPiece;
    std::atomic<std::uint64_t> next{0};
    parallel_for(std::max<std::uint64_t>(1, std::min<std::uint64_t>(threads, pieces)), [&](std::size_t) {
        auto work = make();
        for (std::uint64_t i; (i = next.fetch_add(1)) < pieces;)
            work(i * kPiece, static_cast<std::size_t>(std::min(kPiece, size - i * kPiece)));
    });
}

std::uint8_t nearest(const std::vector<float>& rising, double value) {
    const auto above = std::lower_bound(rising.begin(), rising.end(), value) - rising.begin();
    const auto last = static_cast<std::ptrdiff_t>(rising.size()) - 1;
    if (above > last) return static_cast<std::uint8_t>(last);
    if (above == 0 || rising[static_cast<std::size_t>(above)] == value)
        return static_cast<std::uint8_t>(above);
    const double up = rising[static_cast<std::size_t>(above)] - value;
    const double down = value - rising[static_cast<std::size_t>(above) - 1];
    return static_cast<std::uint8_t>(up < down ? above : above - 1);
}

}  // namespace

// The probabilities stored after one context, while they are rounded.
class QuantizedRows::Worker {
  public:
    Worker(QuantizedRows& model, std::size_t m, std::mutex& mutex,
           std::vector<std::pair<std::uint32_t, float>>& exceptions)
        : model_(model),
          m_(m),
          level_(model.levels_[m - 1]),
          next_(model.levels_[m]),
          mutex_(mutex),
          exceptions_(exceptions) {}

    // Contexts [from, from + count) of m words, in batches of up to kChildren extensions.
    void operator()(std::uint64_t from, std::size_t count) {
        const std::uint32_t* const first = level_.first.data() + from;
        for (std::size_t done = 0; done < count;) {
            std::size_t end = done + 1;
            while (end < count && first[end + 1] - first[done] <= kChildren) ++end;
            contexts(from + done, end - done);
            done = end;
        }
    }

  private:
    void contexts(std::uint64_t from, std::size_t count) {
        const std::uint32_t *const first = level_.first.data() + from, begin = first[0], end = first[count];
        word_.resize(end - begin);
        exact_.resize(end - begin);
        weight_.resize(count);
        model_.exact_.read(m_ + 1, begin, end - begin, word_.data(), exact_.data(), nullptr, nullptr);
        model_.exact_.read(m_, from, count, nullptr, nullptr, weight_.data(), nullptr);
        for (std::size_t i = 0; i < count; ++i)
            context(static_cast<std::uint32_t>(from + i), weight_[i], first[i], first[i] - begin,
                    first[i + 1] - first[i]);
    }

    void context(std::uint32_t row, float exact_weight, std::uint32_t begin, std::size_t at,
                 std::size_t size) {
        const std::size_t suffix = level_.suffix_order.size() ? level_.suffix_order[row] : 0;
        const double sum_below = suffix
                                     ? 1.0 + double{model_.levels_[suffix - 1].excess[level_.suffix_row[row]]}
                                     : model_.unigram_sum_;
        if (size == 0) {
            level_.log_backoff[row] = 0;
            level_.excess[row] = static_cast<float>(sum_below - 1);
            return;
        }
        double exact_sum = 0, sum = 0, below = 0;
        code_.resize(size);
        for (std::size_t i = 0; i < size; ++i) {
            code_[i] = nearest(next_.codebook, exact_[at + i]);
            exact_sum += std::exp(double{exact_[at + i]});
            sum += next_.probs[code_[i]];
            const Lower lower = model_.lower(m_, row, word_[at + i]);
            below += lower.prob;
            if (!next_.suffix_order.size()) continue;
            next_.suffix_order[begin + i] = lower.order;
            next_.suffix_row[begin + i] = lower.row;
        }
        const double others = sum_below - below;
        float weight = exact_weight;
        if (exact_weight == kImpossible || others < kMinOthers) {
            if (others > 0 && exact_weight != kImpossible)
                weight =
                    static_cast<float>(std::min<double>(exact_weight, logarithm(kMaxFromRounding / others)));
            sum = sum_to_one(begin, sum);
        } else {
            sum = leave(std::max(1 - exact_sum, 1e-6) / 2, sum);
            weight = static_cast<float>(logarithm((1 - sum) / others));
            if (m_ > 1) weight = static_cast<float>(std::nearbyint(weight * kGrid) / kGrid);
        }
        level_.log_backoff[row] = weight;
        level_.excess[row] = static_cast<float>(
            sum + (weight == kImpossible || others <= 0 ? 0.0 : std::exp(double{weight}) * others) - 1);
        std::copy(code_.begin(), code_.end(), next_.code.begin() + begin);
    }

    // Lowers codes, those of the most probable words first, until 1 − Σ reaches `least`.
    double leave(double least, double sum) {
        if (1 - sum >= least) return sum;
        sort();
        for (bool is_lowered = true; is_lowered && 1 - sum < least;) {
            is_lowered = false;
            for (std::size_t i = 0; i < rank_.size() && 1 - sum < least; ++i) {
                std::uint8_t& code = code_[rank_[i]];
                if (code == 0) continue;
                sum -= next_.probs[code] - next_.probs[code - 1U];
                --code;
                is_lowered = true;
            }
        }
        return sum_again();
    }

    // Chooses codes that sum to one by changing those of the most probable words first; if that fails,
    // the most probable word is stored unrounded.
    double sum_to_one(std::uint32_t begin, double sum) {
        if (std::abs(1 - sum) <= kSumTolerance) return sum;
        sort();
        for (std::size_t i = 0; i < rank_.size() && std::abs(1 - sum) > kSumTolerance; ++i) {
            std::uint8_t& code = code_[rank_[i]];
            const double target = next_.probs[code] + 1 - sum;
            if (target <= 0) continue;
            const std::uint8_t other = nearest(next_.codebook, logarithm(target));
            const double changed = sum + next_.probs[other] - next_.probs[code];
            if (next_.probs[other] == 0 || std::abs(1 - changed) >= std::abs(1 - sum)) continue;
            code = other;
            sum = changed;
        }
        sum = sum_again();
        const double largest = next_.probs[code_[rank_[0]]] + 1 - sum;
        if (std::abs(1 - sum) <= kSumTolerance || largest <= 0) return sum;
        const std::lock_guard<std::mutex> lock(mutex_);
        exceptions_.emplace_back(begin + rank_[0], static_cast<float>(std::min(logarithm(largest), 0.0)));
        return 1;
    }

    void sort() {
        rank_.resize(code_.size());
        std::iota(rank_.begin(), rank_.end(), 0U);
        std::stable_sort(rank_.begin(), rank_.end(),
                         [&](std::uint32_t a, std::uint32_t b) { return code_[a] > code_[b]; });
    }

    double sum_again() const {
        double sum = 0;
        for (const std::uint8_t code : code_) sum += next_.probs[code];
        return sum;
    }

    QuantizedRows& model_;
    std::size_t m_;
    Level &level_, &next_;
    std::mutex& mutex_;
    std::vector<std::pair<std::uint32_t, float>>& exceptions_;
    std::vector<std::uint32_t> word_, rank_;
    std::vector<float> exact_, weight_;
    std::vector<std::uint8_t> code_;
};

QuantizedRows::QuantizedRows(const Rows& exact, std::size_t threads) : exact_(exact), levels_(exact.order()) {
    unigrams_ = UninitializedBuffer<float>(exact.size(1));
    exact.read(1, 0, unigrams_.size(), nullptr, unigrams_.data(), nullptr, nullptr);
    for (const float log_prob : unigrams_) unigram_sum_ += std::exp(double{log_prob});
    for (std::size_t n = 1; n <= order(); ++n) open_level(n);
    for (std::size_t m = 1; m < order(); ++m) quantize_after(m, threads);
}

void QuantizedRows::open_level(std::size_t n) {
    Level& level = levels_[n - 1];
    const std::uint64_t size = exact_.size(n);
    if (n < order()) {
        level.word = UninitializedBuffer<std::uint32_t>(size);
        level.first = UninitializedBuffer<std::uint32_t>(size + 1);
        exact_.read(n, 0, size, level.word.data(), nullptr, nullptr, level.first.data());
        level.log_backoff = UninitializedBuffer<float>(size);
        level.excess = UninitializedBuffer<float>(size);
    }
    if (n == 1) return;
    level.code = UninitializedBuffer<std::uint8_t>(size);
    if (n < order()) {
        level.suffix_order = UninitializedBuffer<std::uint8_t>(size);
        level.suffix_row = UninitializedBuffer<std::uint32_t>(size);
    }
    ColumnStatistics survey(true);
    std::vector<float> values(kPiece);
    for (std::uint64_t from = 0; from < size; from += kPiece) {
        const auto count = static_cast<std::size_t>(std::min(kPiece, size - from));
        exact_.read(n, from, count, nullptr, values.data(), nullptr, nullptr);
        survey.add({values.data(), count});
    }
    level.codebook = survey.codebook();
    for (const float value : level.codebook) level.probs.push_back(std::exp(double{value}));
}

void QuantizedRows::quantize_after(std::size_t m, std::size_t threads) {
    Level& next = levels_[m];
    std::mutex mutex;
    for_pieces(size(m), threads, [&] { return Worker(*this, m, mutex, next.exceptions); });
    std::sort(next.exceptions.begin(), next.exceptions.end());
}

float QuantizedRows::log_prob_of(std::size_t n, std::uint32_t row) const {
    if (n == 1) return unigrams_[row];
    const Level& level = levels_[n - 1];
    if (!level.exceptions.empty()) {
        const auto at =
            std::lower_bound(level.exceptions.begin(), level.exceptions.end(), std::pair{row, kImpossible});
        if (at != level.exceptions.end() && at->first == row) return at->second;
    }
    return level.codebook[level.code[row]];
}

QuantizedRows::Lower QuantizedRows::lower(std::size_t m, std::uint32_t context, std::uint32_t word) const {
    double log_weights = 0;
    std::size_t n = m;
    std::uint32_t row = context;
    while (n > 1) {
        const Level& level = levels_[n - 1];
        n = level.suffix_order[row];
        row = level.suffix_row[row];
        const Level& shorter = levels_[n - 1];
        const std::uint32_t *const words = levels_[n].word.data(), *const end =
                                                                       words + shorter.first[row + 1];
        const std::uint32_t* const at = std::lower_bound(words + shorter.first[row], end, word);
        if (at != end && *at == word) {
            const auto child = static_cast<std::uint32_t>(at - words);
            return {std::exp(log_prob_of(n + 1, child) + log_weights), static_cast<std::uint8_t>(n + 1),
                    child};
        }
        log_weights += shorter.log_backoff[row];
    }
    return {std::exp(unigrams_[word] + log_weights), 1, word};
}

void QuantizedRows::read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word,
                         float* log_prob, float* log_backoff, std::uint32_t* first) const {
    if (word || first) exact_.read(n, from, count, word, nullptr, nullptr, first);
    for (std::size_t i = 0; log_prob && i < count; ++i)
        log_prob[i] = log_prob_of(n, static_cast<std::uint32_t>(from + i));
    if (!log_backoff) return;
    if (n < order()) {
        std::copy_n(levels_[n - 1].log_backoff.begin() + from, count, log_backoff);
    } else {
        std::fill_n(log_backoff, count, 0.0F);
    }
}

}  // namespace chainrule
