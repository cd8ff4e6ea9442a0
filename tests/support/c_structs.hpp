// The C ABI's structs from and to the C++ ones.
#pragma once

#include <algorithm>

#include "support/buffer.hpp"
#include "tconv/tconv.h"
#include "tconv/tconv.hpp"

namespace testing_support {

inline tconv_layer c_layer(const tconv::Layer& layer) {
  tconv_layer c{};
  c.dims = layer.dims;
  c.in_channels = layer.in_channels;
  c.out_channels = layer.out_channels;
  for (int d = 0; d < 3; ++d) {
    c.kernel[d] = layer.kernel[d];
    c.stride[d] = layer.stride[d];
    c.padding[d] = layer.padding[d];
    c.output_padding[d] = layer.output_padding[d];
    c.dilation[d] = layer.dilation[d];
  }
  c.groups = layer.groups;
  c.bias = layer.bias;
  c.dtype = int(layer.dtype);
  c.precision = int(layer.precision);
  c.layout = int(layer.layout);
  return c;
}

/// Of a valid layer.
inline tconv::Layer cpp_layer(const tconv_layer& c) {
  const auto extents = [](const std::int64_t(&v)[3]) { return tconv::Extents{v[0], v[1], v[2]}; };
  return {.dims = c.dims,
          .in_channels = c.in_channels,
          .out_channels = c.out_channels,
          .kernel = extents(c.kernel),
          .stride = extents(c.stride),
          .padding = extents(c.padding),
          .output_padding = extents(c.output_padding),
          .dilation = extents(c.dilation),
          .groups = c.groups,
          .bias = c.bias != 0,
          .dtype = tconv::DType(c.dtype),
          .precision = tconv::Precision(c.precision),
          .layout = tconv::Layout(c.layout)};
}

inline tconv_tensor c_tensor(const Buffer& buffer) {
  const tconv::Tensor t = buffer.tensor();
  tconv_tensor c{};
  c.data = t.data;
  c.dtype = int(t.dtype);
  c.rank = t.rank;
  std::copy(t.sizes.begin(), t.sizes.end(), c.sizes);
  std::copy(t.strides.begin(), t.strides.end(), c.strides);
  return c;
}

}  // namespace testing_support
