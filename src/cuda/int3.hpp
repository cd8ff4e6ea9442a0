// Sizes as kernels count them, with 32 bits.
#pragma once

#include "cuda/kernels/integers.cuh"
#include "layer/layer.hpp"

namespace tconv::cuda {

using device::Int3;

inline Int3 int3(const Extents& extents) {
  return {int(extents[0]), int(extents[1]), int(extents[2])};
}

}  // namespace tconv::cuda
