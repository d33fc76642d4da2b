// Checks that the distributions of a model sum to one.
#pragma once

#include <cstddef>

#include "ngram/query/model.hpp"

namespace chainrule {

// Largest |Σ_w p(w | h) − 1| over up to `contexts` stored contexts h spread evenly over the rows of each
// order, as many with the largest back-off weights, and as many random contexts, most of which are not
// stored. Deterministic; infinite if a sum is.
double largest_deviation(const Model& model, std::size_t contexts);

}  // namespace chainrule
