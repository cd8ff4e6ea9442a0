// cp.async.bulk.tensor (sm_90): boxes of a tensor that the copy engine finds by a map, issued by one thread.
#pragma once

#include "base.cuh"
#include "launch_params.cuh"

namespace tconv::device::ptx {

__device__ inline void prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<u64>(&map)) : "memory");
}

/// From global to shared memory; completes on a barrier that expects all bytes of the box. What is outside of the
/// tensor comes as zeros. The position is a multiple of 16 bytes.
__device__ inline void tensor_load(u32 shared, const TensorMap& map, int position, int channel, int group, int image,
                                   u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared),
      "l"(reinterpret_cast<u64>(&map)), "r"(position), "r"(channel), "r"(group), "r"(image), "r"(barrier)
      : "memory");
}

}  // namespace tconv::device::ptx
