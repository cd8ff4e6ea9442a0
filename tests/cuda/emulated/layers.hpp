// The layers that emulated kernels are tested with: random ones and those of lists.
#pragma once

#include <random>
#include <string>

#include "layer/layer.hpp"

namespace tconv::cuda::emulated {

struct Case {
  Layer layer;
  std::int64_t batch;
  Extents input;
  std::string text;
  bool exported = false;  // one kernel for every size
  int multiprocessors = 2;
  bool backwards = false;           // the images of x: a negative stride
  std::int64_t bias_stride = 1;     // elements from one to the next
  double x_size = 1, x_step = 1;    // of the first half of x's channels, and how much larger the others are; where
                                    // they differ, the first ones are zeros in the second half of each row
  double w_size = 1, w_uneven = 1;  // of the weights of the first output channel, and from each to the next
  bool infinite = false;            // one number of x is
};

Case random_case(std::mt19937& rng);

/// A layer of a list, with bias; what else it needs is the caller's to set.
template <class Listed>
Case case_of(const Listed& listed, std::ptrdiff_t index) {
  Case c;
  Layer& l = c.layer;
  l.dims = listed.dims, l.in_channels = listed.in, l.out_channels = listed.out, l.bias = true;
  l.dtype = listed.dtype, l.precision = listed.precision, l.layout = listed.layout;
  l.kernel = listed.kernel, l.stride = listed.stride, c.input = listed.input;
  for (std::size_t d = std::size_t(l.dims); d < 3; ++d) l.kernel[d] = l.stride[d] = c.input[d] = 1;
  c.batch = 2, c.text = "layer " + std::to_string(index);
  return c;
}

/// The number in a variable of the environment: TCONV_EMULATED_LAYERS and TCONV_EMULATED_SEED ask for more random
/// layers, or others.
int asked(const char* name, int otherwise);

}  // namespace tconv::cuda::emulated
