// What kernels can count. They know the parameters of a layer and the sizes of an image with 32 bits, layers
// with 64.
#pragma once

#include "layer/layer.hpp"

namespace tconv::cuda {

/// Of any parameter of a layer: two of them can be added.
constexpr std::int64_t largest_parameter = std::int64_t(1) << 30;

/// Throws Unsupported for a layer with a larger one.
void check_parameters(const Layer& layer);

/// Whether the sizes of a shape, and all positions along a dimension, can be counted with 32 bits: by the kernels
/// other than the generic one, which counts them with 64.
bool has_small_sizes(const Geometry& geometry, const Shape& shape);

}  // namespace tconv::cuda
