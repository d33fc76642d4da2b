// Whether what a model says after its contexts sums to one.
#pragma once

#include <cstddef>

#include "ngram/query/model.hpp"

namespace chainrule {

// The largest |Σ_w p(w | h) − 1| over up to `contexts` contexts h that are stored, spread evenly over the
// rows of each order (all of them where there are no more), as many with the largest back-off weights, and as
// many that are drawn at random, most of which are not stored. Always the same contexts of the same model;
// infinite where a sum is.
double largest_deviation(const Model& model, std::size_t contexts);

}  // namespace chainrule
