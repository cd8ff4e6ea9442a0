#include "cuda/kernel_limits.hpp"

#include <limits>

namespace tconv::cuda {
namespace {

using std::int64_t;

void check(const std::string& what, int64_t value, const std::string& where = "") {
  if (value > largest_parameter)
    throw Unsupported(what + " must be at most " + std::to_string(largest_parameter) + " on CUDA devices, got " +
                      std::to_string(value) + where);
}

}  // namespace

void check_parameters(const Layer& layer) {
  check("in_channels", layer.in_channels);
  check("out_channels", layer.out_channels);
  int64_t taps = 1;
  for (int d = 0; d < layer.dims; ++d) {
    const std::string where = " in dimension " + std::to_string(d);
    check("kernel", layer.kernel[d], where);
    check("stride", layer.stride[d], where);
    check("padding", layer.padding[d], where);
    check("output_padding", layer.output_padding[d], where);
    check("dilation", layer.dilation[d], where);
    check("dilation * (kernel - 1)", layer.dilation[d] * (layer.kernel[d] - 1), where);
    taps *= layer.kernel[d];
    check("the number of taps", taps);
  }
}

bool has_small_sizes(const Geometry& geometry, const Shape& shape) {
  // Boxes of positions end behind the last one that has an output.
  constexpr int64_t behind = int64_t(1) << 20, most = std::numeric_limits<int>::max();
  bool small = shape.batch <= most;
  for (std::size_t d = 0; d < 3; ++d)
    small = small && shape.input[d] <= most && shape.output[d] + geometry.padding[d] <= most - behind;
  return small;
}

}  // namespace tconv::cuda
