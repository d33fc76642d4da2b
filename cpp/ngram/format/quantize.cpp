// Codes of columns: see the header.
#include "ngram/format/quantize.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace chainrule {

namespace {

constexpr std::uint32_t kSign = 0x80000000U, kInfinity = 0x7F800000U;
constexpr std::uint32_t kFree = 0x7FFFFFFFU;  // the bits of no number, so that they can mark a free slot
constexpr std::array<std::uint32_t, 4> kExact = {0, kSign, kInfinity, kSign | kInfinity};
constexpr unsigned kCodeBits = 8, kLowerBits = 14;
constexpr std::size_t kBins = std::size_t{1} << (32 - kLowerBits);
constexpr std::uint32_t kLower = (1U << kLowerBits) - 1;

std::size_t home_of(std::uint32_t value, std::size_t slots) {  // slots is a power of 2
    return (value * 0x9E3779B97F4A7C15ULL >> 32) & (slots - 1);
}

// Which of kExact it is; their number where it is none of them.
std::size_t exact_number(std::uint32_t value) {
    return static_cast<std::size_t>(std::find(kExact.begin(), kExact.end(), value) - kExact.begin());
}

bool is_exact(std::uint32_t value) { return (value << 1) == 0 || (value & ~kSign) == kInfinity; }

// Numbers that rise as the floats do.
std::uint32_t rank_of(std::uint32_t value) { return value & kSign ? ~value : value | kSign; }

double value_at(std::uint32_t rank) { return std::bit_cast<float>(rank & kSign ? rank & ~kSign : ~rank); }

// Numbers that are taken as one: how many, and their mean.
struct Group {
    std::uint32_t bin;
    double count, mean;
};

// Where each of `parts` parts of the groups begins at first: as dense as the cube root of how dense the
// numbers lie, which is where the least squares end up where parts are many (Panter and Dite 1951).
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

// The mean of each part; an empty part has that of the one before it.
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

// Where each part begins whose groups are nearer to its mean than to any other.
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

// Lloyd's steps: every group goes to the nearest mean, and the means are taken anew.
std::vector<double> best_means(const std::vector<Group>& groups, std::size_t parts) {
    constexpr int steps = 60;
    std::vector<double> means = means_of(groups, first_cuts(groups, parts));
    for (int step = 0; step < steps; ++step) means = means_of(groups, nearest_cuts(groups, means));
    return means;
}

}  // namespace

std::uint32_t Codes::code(float number) const {
    const std::uint32_t value = std::bit_cast<std::uint32_t>(number);
    if (coding == Coding::plain) return value;
    if (coding == Coding::signless) return value & kSign ? value & ~kSign : kFree;
    if (!near_code_.empty() && !is_exact(value)) return near_code_[rank_of(value) >> kLowerBits];
    for (std::size_t i = home_of(value, slots_.size());; i = (i + 1) & (slots_.size() - 1)) {
        if (slots_[i].value == value) return slots_[i].code;
        if (slots_[i].value == kFree) throw Failure("a model's numbers changed while they were written");
    }
}

void Codes::find_exactly(const std::vector<std::uint32_t>& values) {
    slots_.assign(std::bit_ceil(2 * values.size() + 2), {kFree, 0});
    for (std::size_t k = 0; k < values.size(); ++k) {
        std::size_t i = home_of(values[k], slots_.size());
        while (slots_[i].value != kFree) i = (i + 1) & (slots_.size() - 1);
        slots_[i] = {values[k], static_cast<std::uint32_t>(k)};
    }
}

ColumnSurvey::ColumnSurvey(bool is_quantized)
    : is_quantized_(is_quantized),
      most_different_(std::size_t{1} << (is_quantized ? kCodeBits : kMostTableBits)),
      slots_(1024, kFree),
      bins_(is_quantized ? kBins : 0) {}

void ColumnSurvey::add(std::span<const float> values) {
    count_ += values.size();
    for (const float number : values) {
        const std::uint32_t value = std::bit_cast<std::uint32_t>(number);
        if ((value & ~kSign) > kInfinity) throw Failure("a model holds a value that is not a number");
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

void ColumnSurvey::add_different(std::uint32_t value) {
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

void ColumnSurvey::grow() {
    std::vector<std::uint32_t> old(2 * slots_.size(), kFree);
    std::swap(old, slots_);
    different_ = 0;
    for (const std::uint32_t value : old)
        if (value != kFree) add_different(value);
}

void ColumnSurvey::join(const ColumnSurvey& other) {
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

Codes ColumnSurvey::codes() const {
    Codes made;
    made.bits = can_drop_sign_ ? kSignlessBits : kPlainBits;
    made.coding = can_drop_sign_ ? Coding::signless : Coding::plain;
    if (slots_.empty()) return is_quantized_ ? quantized() : made;
    const unsigned bits = different_ > 1 ? static_cast<unsigned>(std::bit_width(different_ - 1)) : 0;
    if (count_ * (made.bits - bits) <= (std::uint64_t{kPlainBits} << bits)) return made;  // none is saved
    std::vector<std::uint32_t> values;
    for (const std::uint32_t value : slots_)
        if (value != kFree) values.push_back(value);
    std::sort(values.begin(), values.end());
    made.coding = Coding::table;
    made.bits = bits;
    for (const std::uint32_t value : values) made.table.push_back(std::bit_cast<float>(value));
    made.table.resize(std::size_t{1} << bits, made.table.back());
    made.find_exactly(values);
    return made;
}

std::vector<float> ColumnSurvey::codebook() const {
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

Codes ColumnSurvey::quantized() const {
    Codes made;
    made.coding = Coding::table;
    made.bits = kCodeBits;
    std::vector<std::uint32_t> exact;
    for (std::size_t k = 0; k < kExact.size(); ++k)
        if (exact_ >> k & 1U) exact.push_back(kExact[k]);
    for (const std::uint32_t value : exact) made.table.push_back(std::bit_cast<float>(value));
    made.find_exactly(exact);
    std::vector<Group> groups;
    for (std::uint32_t b = 0; b < bins_.size(); ++b) {
        if (!bins_[b].count) continue;
        // The floats of a bin share their exponent, and are as far apart each from the next.
        const double count = static_cast<double>(bins_[b].count), least = value_at(b << kLowerBits);
        const double step = (value_at(b << kLowerBits | kLower) - least) / kLower;
        groups.push_back({b, count, least + step * (static_cast<double>(bins_[b].lower) / count)});
    }
    const std::size_t parts = (std::size_t{1} << kCodeBits) - exact.size();
    const std::vector<double> means = best_means(groups, parts);
    const std::vector<std::size_t> cuts = nearest_cuts(groups, means);
    for (const double mean : means) made.table.push_back(static_cast<float>(mean));
    made.near_code_.assign(kBins, 0);
    for (std::size_t k = 0; k < parts; ++k)
        for (std::size_t i = cuts[k]; i < cuts[k + 1]; ++i)
            made.near_code_[groups[i].bin] = static_cast<std::uint8_t>(exact.size() + k);
    return made;
}

}  // namespace chainrule
