#include "cuda/heuristics/shape_class.hpp"

#include <bit>

#include "cuda/kernel_limits.hpp"

namespace tconv::cuda {

Shape shape_class(const Layer& layer, const Shape& shape) {
  const auto length = std::uint64_t(shape.input[2]);
  if (layer.dims != 1 || length > std::uint64_t(1) << 30) return shape;
  const Shape class_shape = shape_of(layer, shape.batch, {std::int64_t(std::bit_ceil(length)), 1, 1});
  return has_small_sizes(geometry_of(layer), class_shape) ? class_shape : shape;
}

}  // namespace tconv::cuda
