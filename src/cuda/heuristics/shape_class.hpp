// The shape a tile is chosen for. Kernels serve every length, but each length has a best tile of its own, and
// audio never stops bringing new lengths: in one dimension all lengths up to the next power of two share a tile,
// so that a layer is compiled a few times in its life. It is a function of the shape alone, not of what came
// before: the same input is always summed in the same order.
#pragma once

#include "layer/layer.hpp"

namespace tconv::cuda {

Shape shape_class(const Layer& layer, const Shape& shape);

}  // namespace tconv::cuda
