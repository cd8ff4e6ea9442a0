// Layers of two dimensions as the march kernel sees them: their height is the depth of a layer whose height is 1,
// for it is along the depth that it marches.
#pragma once

#include "cuda/kernels/launch_params.cuh"
#include "layer/layer.hpp"

namespace tconv::cuda {

inline Extents upright(const Extents& e) {
  return {e[1], e[0], e[2]};
}
inline Geometry upright(Geometry g) {
  for (Extents* const e : {&g.kernel, &g.stride, &g.padding, &g.dilation}) *e = upright(*e);
  return g;
}
inline Shape upright(const Shape& s) {
  return {s.batch, upright(s.input), upright(s.output)};
}
inline device::ImageStrides upright(device::ImageStrides strides) {
  return {strides.n, strides.c, strides.h, strides.d, strides.w};
}

}  // namespace tconv::cuda
