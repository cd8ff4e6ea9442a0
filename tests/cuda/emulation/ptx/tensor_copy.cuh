// Emulated copies by a tensor map, which is its description here.
#pragma once

#include "launch_params.cuh"
#include "ptx/async_copy.cuh"
#include "ptx/barrier.cuh"
#include "ptx/wgmma.cuh"

namespace tconv::device::ptx {

inline void prefetch(const TensorMap&) {}

inline void tensor_load(u32 to, const TensorMap& map, int position, int channel, int group, int image,
                        u32 barrier) {
  MapDescription of_x;
  std::memcpy(&of_x, &map, sizeof of_x);
  const u32 bytes = of_x.copied[0] * of_x.copied[1] * 2;
  emulation::require(to % 128 == 0 && of_x.copied[0] * 2 <= 128 && position % 8 == 0 &&
                         of_x.strides[0] % 16 == 0 && of_x.strides[2] % 16 == 0 &&
                         reinterpret_cast<std::uintptr_t>(of_x.x) % 16 == 0,
                     "a misaligned copy of a tensor");
  shared_pointer(to, bytes);
  emulation::PhaseBarrier& b = phase_barrier(barrier);
  emulation::races::copies(to, bytes, barrier, b.meeting);
  emulation::races::unrecorded([&] {
    for (u32 c = 0; c < of_x.copied[1]; ++c)
      for (u32 i = 0; i < of_x.copied[0]; ++i) {
        const u64 at[4] = {u64(position) + i, u64(channel) + c, u64(group), u64(image)};
        bool inside = true;
        for (int d = 0; d < 4; ++d) inside = inside && at[d] < of_x.sizes[d];
        u16 value = 0;
        if (inside)
          std::memcpy(&value,
                      static_cast<const unsigned char*>(of_x.x) + at[0] * 2 + at[1] * of_x.strides[0] +
                          at[2] * of_x.strides[1] + at[3] * of_x.strides[2],
                      2);
        std::memcpy(shared_pointer(swizzled(to + c * 128 + i * 2), 2), &value, 2);
      }
  });
  b.bytes -= bytes;
  complete_if_due(b);
}

}  // namespace tconv::device::ptx
