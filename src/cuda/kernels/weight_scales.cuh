// The scale of the weights of each output channel, for operands that have to be scaled (mma/scale.cuh): what undoes it.
// A block takes a channel.
#pragma once

#include "base.cuh"
#include "launch_params.cuh"
#include "mma/scale.cuh"
#include "ptx/launch.cuh"

namespace tconv::device {

__device__ inline void find_weight_scales(const ScaleParams& p) {
  ptx::begin_after_previous();
  extern __shared__ unsigned shared[];
  const int group = int(blockIdx.x) / p.group_out, channel = int(blockIdx.x) % p.group_out;
  const float* const weight = p.weight + i64(group) * p.group_in * p.stride_in + channel * p.stride_out;
  const int taps = volume(p.kernel);
  float largest = 0;
  for (i64 i = threadIdx.x; i < i64(p.group_in) * taps; i += blockDim.x) {
    const int tap = int(i % taps), w = tap % p.kernel.w, h = tap / p.kernel.w % p.kernel.h;
    const int d = tap / p.kernel.w / p.kernel.h;
    largest = fmaxf(
        largest, finite_magnitude(weight[i / taps * p.stride_in + d * p.stride_d + h * p.stride_h + w * p.stride_w]));
  }
  const u32 of_warp = __reduce_max_sync(0xffffffff, __float_as_uint(largest));
  if (lane_index() == 0) shared[warp_index()] = of_warp;
  __syncthreads();
  if (threadIdx.x > 0) return;
  u32 all = 0;
  for (int i = 0; i < int(blockDim.x) / warp_size; ++i) all = all > shared[i] ? all : shared[i];
  p.scales[blockIdx.x] = power_of_two(undone(scale_for(all)));
}

}  // namespace tconv::device
