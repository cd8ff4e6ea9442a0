// The weight slab: the A fragments of one chunk of channels and a few steps, in shared memory.
//
// Packed weights lie in memory exactly as fragments are read, [row block][octet][step][row tile][lane][4],
// so the steps of an octet are one contiguous run and an A fragment is one 16-byte read per lane. The
// order knows nothing of tiles: one packing serves them all.
#pragma once

#include "ptx/async_copy.cuh"
#include "sizes/weights.cuh"
#include "tile.cuh"

namespace tconv::device {

template <GemmConfig C>
struct WeightSlab {
  static constexpr int row_tiles = row_tiles_of(C);
  static constexpr int substeps = substeps_of(C);
  static constexpr int step_words = device::step_words(C);
  static constexpr int words = slab_words(C);
  static constexpr int threads = threads_of(C);

  /// Loads `count` steps of each octet of the chunk; `packed` is the first of them, octets lie `steps` apart.
  __device__ static void load(u32* slab, const u32* packed, int count, int steps) {
    const u32 base = ptx::shared_address(slab);
#pragma unroll
    for (int k = 0; k < substeps; ++k)
      for (int i = threadIdx.x; i < count * (step_words / 4); i += threads)
        ptx::copy_async<16>(base + (k * C.steps_per_slab * step_words + i * 4) * 4,
                            packed + i64(k) * steps * step_words + i * 4, true);
  }
};

}  // namespace tconv::device
