// Every kernel set that this processor supports, compared with plain loops in double.
#include <limits>
#include <vector>

#include "base/buffer.hpp"
#include "base/random.hpp"
#include "checks.hpp"
#include "vectors/kernels/kernels.hpp"

namespace chainrule::tests {

namespace {

using Matrix = std::vector<std::vector<double>>;

constexpr std::size_t kRows = 12;
constexpr double kWithin =
    2e-4;  // σ is tabulated in cells of width 1/64: an error of 1/512, times the rate, times a weight

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Aligned rows for the kernels, with the same values in double.
struct Rows {
    Rows(std::size_t count, std::size_t dimensions, Random& random)
        : width((dimensions + kLanes - 1) / kLanes * kLanes), values(count * width), plain(count) {
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t d = 0; d < dimensions; ++d) {
                // Dot products stay within the table, which ends at 8.
                const float x =
                    (static_cast<float>(random.below(2001)) - 1000) / (dimensions > 100 ? 8000.0F : 2000.0F);
                row(i)[d] = x;
                plain[i].push_back(static_cast<double>(x));
            }
        }
    }
    float* row(std::size_t i) { return values.data() + i * width; }
    bool is_plain(double within) {
        for (std::size_t i = 0; i < plain.size(); ++i) {
            for (std::size_t d = 0; d < width; ++d) {
                const double expected = d < plain[i].size() ? plain[i][d] : 0;
                if (!(std::abs(static_cast<double>(row(i)[d]) - expected) <= within)) return false;
            }
        }
        return true;
    }

    std::size_t width;
    AlignedFloats values;
    Matrix plain;
};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
    return sum;
}

void add(std::vector<double>& to, double factor, const std::vector<double>& from) {
    for (std::size_t d = 0; d < to.size(); ++d) to[d] += factor * from[d];
}

double loss_of(double product, bool is_word) { return std::log1p(std::exp(is_word ? -product : product)); }

double plain_window(Matrix& x, Matrix& y, double rate) {
    double loss = 0;
    for (std::size_t first = 0; first < y.size(); first += kGroup) {
        const Matrix x_before = x, y_before = y;
        for (std::size_t k = first; k < y.size() && k < first + kGroup; ++k) {
            for (std::size_t a = 0; a < x.size(); ++a) {
                const double product = dot(x_before[a], y_before[k]);
                const double e = rate * ((k == 0) - sigmoid(product));
                loss += loss_of(product, k == 0);
                add(x[a], e, y_before[k]);
                add(y[k], e, x_before[a]);
            }
        }
    }
    return loss;
}

double plain_bag(Matrix& x, Matrix& y, double rate) {
    std::vector<double> h(x[0].size()), gradient(x[0].size());
    for (const auto& row : x) add(h, 1 / static_cast<double>(x.size()), row);
    double loss = 0;
    for (std::size_t k = 0; k < y.size(); ++k) {
        const double product = dot(h, y[k]);
        const double e = rate * ((k == 0) - sigmoid(product));
        loss += loss_of(product, k == 0);
        add(gradient, e, y[k]);
        add(y[k], e, h);
    }
    for (auto& row : x) add(row, 1, gradient);
    return loss;
}

void step(const Kernels& kernels, std::size_t dimensions, std::size_t inputs, std::size_t targets,
          bool is_bag) {
    Random random(dimensions * 1000 + inputs * 20 + targets);
    Rows x(inputs, dimensions, random), y(targets, dimensions, random);
    std::vector<float*> from, to;
    for (std::size_t a = 0; a < inputs; ++a) from.push_back(x.row(a));
    for (std::size_t k = 0; k < targets; ++k) to.push_back(y.row(k));
    AlignedFloats scratch(kGroup * inputs + 2 * x.width + kGroup);
    double loss = 0;
    const Step kernel_step{from.data(), inputs, to.data(), targets, x.width, 0.025F, scratch.data(), &loss};
    (is_bag ? kernels.bag : kernels.window)(kernel_step);
    const double expected =
        is_bag ? plain_bag(x.plain, y.plain, 0.025) : plain_window(x.plain, y.plain, 0.025);
    const std::string what = std::string(kernels.name) + (is_bag ? " bag " : " window ") +
                             std::to_string(dimensions) + " " + std::to_string(inputs) + " " +
                             std::to_string(targets);
    const double slack = kWithin * static_cast<double>(inputs > targets ? inputs : targets);
    check(x.is_plain(slack), what + ": inputs");
    check(y.is_plain(slack), what + ": outputs");
    check_close(loss, expected, 0.01 * static_cast<double>(inputs * targets), what + ": loss");
}

void fit(const Kernels& kernels, std::size_t dimensions) {
    Random random(dimensions);
    Rows pair(2, dimensions + 1, random), sums(2, dimensions + 1, random);
    for (std::size_t row = 0; row < 2; ++row) {
        for (std::size_t d = 0; d < sums.width; ++d) sums.row(row)[d] = 1.0F + static_cast<float>(d % 5);
        for (std::size_t d = 0; d <= dimensions; ++d) sums.plain[row][d] = 1.0 + static_cast<double>(d % 5);
    }
    const float cost = kernels.fit(
        {pair.row(0), pair.row(1), sums.row(0), sums.row(1), pair.width, dimensions, 0.7F, 1.5F, 0.05F});
    auto w = pair.plain[0], v = pair.plain[1];
    const double b_w = w.back(), b_v = v.back();
    w.back() = v.back() = 0;
    const double difference = dot(w, v) + b_w + b_v - 1.5, g = 0.05 * 0.7 * difference;
    w.back() = v.back() = 1;  // the bias is the last entry of a row, paired with 1
    for (std::size_t d = 0; d <= dimensions; ++d) {
        pair.plain[0][d] -= g * v[d] / std::sqrt(sums.plain[0][d]);
        pair.plain[1][d] -= g * w[d] / std::sqrt(sums.plain[1][d]);
    }
    const std::string what = std::string(kernels.name) + " fit " + std::to_string(dimensions);
    check_close(static_cast<double>(cost), 0.35 * difference * difference, 1e-4, what + ": cost");
    check(pair.is_plain(1e-5), what + ": vectors");
    for (std::size_t d = 0; d <= dimensions; ++d) {
        check_close(static_cast<double>(sums.row(0)[d]), sums.plain[0][d] + g * g * v[d] * v[d], 1e-5,
                    what + ": sums");
        check_close(static_cast<double>(sums.row(1)[d]), sums.plain[1][d] + g * g * w[d] * w[d], 1e-5,
                    what + ": sums");
    }
}

// NaN stays NaN, and the table is not read out of bounds.
void not_a_number(const Kernels& kernels) {
    AlignedFloats x(kLanes), y(kLanes), scratch(2 * kGroup + 2 * kLanes);
    x.data()[0] = std::numeric_limits<float>::quiet_NaN();
    y.data()[0] = std::numeric_limits<float>::infinity();
    float *from[] = {x.data()}, *to[] = {y.data()};
    double loss = 0;
    kernels.window({from, 1, to, 1, kLanes, 0.1F, scratch.data(), &loss});
    kernels.bag({from, 1, to, 1, kLanes, 0.1F, scratch.data(), nullptr});
    check(std::isnan(x.data()[0]), "NaN stays NaN");
}

}  // namespace

static void test_kernels() {
    for (const std::string name : {"none", "avx2", "avx512"}) {
        const Kernels* kernels = nullptr;
        try {
            kernels = &choose_kernels(name);
        } catch (const Error&) {
            std::printf("%s does not run here\n", name.c_str());
            continue;
        }
        check(kernels->name == name, "the kernels have their name");
        for (const std::size_t dimensions : {1, 15, 16, 17, 100, 1000}) {
            for (const std::size_t inputs : {std::size_t{1}, std::size_t{2}, kRows}) {
                for (std::size_t targets = 1; targets <= 2 * kGroup + 1; ++targets) {
                    step(*kernels, dimensions, inputs, targets, false);
                    step(*kernels, dimensions, inputs, targets, true);
                }
            }
            fit(*kernels, dimensions);
        }
        not_a_number(*kernels);
    }
    check_fails([] { choose_kernels("sse9"); }, "do not run");
    choose_kernels("auto");
}

static const Test registered("kernels", test_kernels);

}  // namespace chainrule::tests
