#include "emulated/layers.hpp"

#include <algorithm>
#include <cstdlib>

#include "cuda/direct_launch.hpp"

namespace tconv::cuda::emulated {

using std::int64_t;

Case random_case(std::mt19937& rng) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  for (;;) {
    Case c;
    Layer& l = c.layer;
    l.dims = pick(1, 3);
    l.groups = pick(0, 4) ? 1 : 2;
    l.in_channels = l.groups * (pick(0, 4) ? pick(9, 40) : pick(3, 8));  // of few, steps are pairs
    l.out_channels = l.groups * (pick(0, 3) ? pick(17, 70) : pick(3, 16));
    const bool rows64 = pick(0, 2) == 0;  // what the panel kernel takes
    const bool few = pick(0, 3) == 0;     // rows, so that positions have several inputs
    if (rows64) l.in_channels = l.groups * pick(24, 48);
    double work = double(l.in_channels);
    for (int d = 0; d < l.dims; ++d) {
      const auto at = std::size_t(d);
      l.kernel[at] = pick(1, l.dims == 1 ? 7 : 3);
      l.stride[at] = pick(0, 1) ? 1 : rows64 ? pick(2, 4) : pick(1, 7);
      l.dilation[at] = pick(0, 2) ? 1 : pick(1, 3);
      l.padding[at] = pick(0, 3);
      l.output_padding[at] = pick(0, int(std::max(l.stride[at], l.dilation[at])) - 1);
      c.input[at] = pick(1, l.dims == 1 ? 300 : l.dims == 2 ? 24 : 8);
      work *= double(c.input[at] * l.kernel[at]);
    }
    const int64_t width_stride = l.stride[std::size_t(l.dims - 1)];
    if (few) {
      l.out_channels = l.groups * pick(1, 32), l.in_channels = l.groups * pick(9, 40);
      l.kernel[std::size_t(l.dims - 1)] = pick(2, 7);
    } else if (rows64)
      l.out_channels = l.groups * 64 * pick(1, 4) / width_stride;
    work *= double(l.out_channels / l.groups);
    if (pick(0, 1)) c.input[std::size_t(l.dims - 1)] = (c.input[std::size_t(l.dims - 1)] + 7) / 8 * 8;
    c.batch = pick(1, 3);
    l.bias = pick(0, 1);
    const int mode = pick(0, 3);
    l.dtype = mode < 2 ? DType::f32 : mode == 2 ? DType::f16 : DType::bf16;
    l.precision = mode == 1 ? Precision::tf32 : Precision::fp32;
    l.layout = l.dims > 1 && pick(0, 2) == 0 ? Layout::channels_last : Layout::channels_first;
    if (l.layout == Layout::channels_last && pick(0, 2))
      l.in_channels = l.groups * 8 * pick(2, 6);  // whole vectors
    // The direct kernels, which serve few channels, are not emulated.
    if (work * double(c.batch) > 4e6 || few_channels(geometry_of(l))) continue;
    try {
      (void)shape_of(l, c.batch, c.input);
    } catch (const Error&) {
      continue;
    }
    const auto e = [&](const Extents& v) { return format_extents(l.dims, v); };
    c.text = std::to_string(l.dims) + "D batch " + std::to_string(c.batch) + " " + std::to_string(l.in_channels) +
             "->" + std::to_string(l.out_channels) + " groups " + std::to_string(l.groups) + " input " +
             e(c.input) + " kernel " + e(l.kernel) + " stride " + e(l.stride) + " padding " + e(l.padding) +
             " output padding " + e(l.output_padding) + " dilation " + e(l.dilation) + " " + to_string(l.dtype) +
             " " + to_string(l.precision) + " " + to_string(l.layout);
    return c;
  }
}

int asked(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

}  // namespace tconv::cuda::emulated
