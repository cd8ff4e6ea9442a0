// Emulated copies of the copy engine.
#pragma once

#include "ptx/async_copy.cuh"
#include "ptx/barrier.cuh"

namespace tconv::device::ptx {

inline void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) {
  emulation::require(to % 16 == 0 && bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(from) % 16 == 0,
                     "a misaligned bulk copy");
  std::memcpy(shared_pointer(to, bytes), from, bytes);
  emulation::PhaseBarrier& b = phase_barrier(barrier);
  emulation::races::copies(to, bytes, barrier, b.meeting);
  b.bytes -= bytes;
  complete_if_due(b);
}

}  // namespace tconv::device::ptx
