// Sizes as kernels count them, with 32 bits. That they can is seen to before (kernel_limits.hpp).
#pragma once

#include <cassert>
#include <utility>

#include "cuda/kernels/integers.cuh"
#include "layer/layer.hpp"

namespace tconv::cuda {

using device::Int3;

inline Int3 int3(const Extents& extents) {
  for ([[maybe_unused]] const std::int64_t extent : extents) assert(std::in_range<int>(extent));
  return {int(extents[0]), int(extents[1]), int(extents[2])};
}

}  // namespace tconv::cuda
