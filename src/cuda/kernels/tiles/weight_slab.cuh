// The weight slab: the A fragments of one chunk of channels and a few steps, in shared memory.
//
// Packed weights lie in memory exactly as fragments are read, [row block][octet][step][row tile][lane][4],
// so the steps of an octet are one contiguous run and an A fragment is one 16-byte read per lane, or two of doubles:
// [row tile][half][lane][2]. The order knows nothing of tiles: one packing serves them all.
#pragma once

#include "ptx/async_copy.cuh"
#include "sizes/weights.cuh"
#include "tile.cuh"

namespace tconv::device {

/// A lane's part of a row tile, whose words it finds 16 bytes at a time.
__device__ inline void read_fragment(u32 (&fragment)[4], const uint4* from) {
  const uint4 v = *from;
  fragment[0] = v.x, fragment[1] = v.y, fragment[2] = v.z, fragment[3] = v.w;
}
__device__ inline void read_fragment(double (&fragment)[4], const uint4* from) {
  const double2 low = *reinterpret_cast<const double2*>(from);
  const double2 high = *reinterpret_cast<const double2*>(from + warp_size);
  fragment[0] = low.x, fragment[1] = low.y, fragment[2] = high.x, fragment[3] = high.y;
}

template <GemmConfig C>
struct WeightSlab {
  using Word = OperandWord<C>;
  static constexpr int row_tiles = row_tiles_of(C);
  static constexpr int substeps = substeps_of(C);
  static constexpr int step_words = device::step_words(C);
  static constexpr int words = slab_words(C);
  // In copies of 16 bytes, as fragments are read.
  static constexpr int step_copies = step_words * word_bytes(C) / 16, tile_copies = step_copies / row_tiles;
  static constexpr int threads = threads_of(C);

  /// Loads `count` steps of each octet of the chunk; `packed` is the first of them, octets lie `steps` apart.
  __device__ static void load(Word* slab, const Word* packed, int count, int steps) {
    const u32 base = ptx::shared_address(slab);
    const uint4* const from = reinterpret_cast<const uint4*>(packed);
#pragma unroll
    for (int k = 0; k < substeps; ++k)
      for (int i = threadIdx.x; i < count * step_copies; i += threads)
        ptx::copy_async<16>(base + (k * C.steps_per_slab * step_copies + i) * 16,
                            from + i64(k) * steps * step_copies + i, true);
  }
};

}  // namespace tconv::device
