// wgmma (sm_90a): products of a warpgroup, 64 x N; the first operand is in registers or in shared memory, the
// second in shared memory.
//
// The instruction itself is written by codegen.cpp for the N of the layer. The operand in registers lies as
// that of mma.sync does, warp by warp: warp w has rows 16w to 16w + 15. So do the sums: d[4n…4n + 3] is a
// warp's 16 x 8 tile of columns 8n to 8n + 7.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

/// Describes an operand of N rows by eight words at `address`: [row / 8][word / 4][row % 8][word % 4], without
/// swizzle, so that each 8 x 16-byte matrix the tensor core reads is contiguous.
__device__ inline u64 wgmma_operand(u32 address) {
  constexpr u64 word_stride = u64(128 / 16) << 16, row_stride = u64(256 / 16) << 32;
  // All lanes have the same address; saying so lets it live in a uniform register.
  const u32 uniform = __shfl_sync(0xffffffff, address, 0);
  return u64((uniform & 0x3ffff) >> 4) | word_stride | row_stride;
}

/// Describes an operand of N positions by eight words, the first of them at `address`: slices of four words lie
/// `slice_bytes` apart, and in a slice a position follows its neighbour. So it may start at any position.
__device__ inline u64 wgmma_panel(u32 address, u32 slice_bytes) {
  constexpr u64 position_stride = u64(128 / 16) << 32;
  const u32 uniform = __shfl_sync(0xffffffff, address, 0);
  return u64((uniform & 0x3ffff) >> 4) | u64(slice_bytes / 16) << 16 | position_stride;
}

/// Describes an operand of N positions by 16 channels of 16 bits, positions as its major dimension: 64 of them of a
/// channel are 128 bytes, swizzled, channels follow one another, and the next 64 positions lie `copy_bytes` further.
__device__ inline u64 wgmma_mapped(u32 address, u32 copy_bytes) {
  constexpr u64 swizzled = u64(1) << 62, eight_channels = u64(1024 / 16) << 32;
  const u32 uniform = __shfl_sync(0xffffffff, address, 0);
  return u64((uniform & 0x3ffff) >> 4) | u64(copy_bytes / 16) << 16 | eight_channels | swizzled;
}

/// Orders register and shared-memory accesses before the products that follow.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until all but the newest `Pending` groups of products are complete.
template <int Pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

template <int Registers>
__device__ inline void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ inline void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Sums of products that were waited for: to the compiler they are written here.
template <int Count>
__device__ inline void wgmma_sums(float (&sums)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

}  // namespace tconv::device::ptx
