// Emulated barriers.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

inline void barrier_init(u32 barrier, u32 arrivals) {
  emulation::require(barrier % 8 == 0, "a misaligned barrier");
  emulation::state.phases[barrier] = {int(arrivals), int(arrivals), 0, 0};
}
inline void barrier_init_fence() {}
inline emulation::PhaseBarrier& phase_barrier(u32 barrier) {
  const auto at = emulation::state.phases.find(barrier);
  emulation::require(at != emulation::state.phases.end(), "a barrier that was never initialised");
  return at->second;
}
inline void barrier_arrive(u32 barrier) {
  emulation::PhaseBarrier& b = phase_barrier(barrier);
  --b.pending;
  complete_if_due(b);
}
inline void barrier_arrive_copies(u32 barrier) { barrier_arrive(barrier); }
inline void barrier_arrive_expect(u32 barrier, u32 bytes) {
  emulation::PhaseBarrier& b = phase_barrier(barrier);
  b.bytes += bytes, --b.pending;
  complete_if_due(b);
}
inline bool barrier_test(u32 barrier, u32 parity) { return phase_barrier(barrier).phase != parity; }
inline void barrier_wait(u32 barrier, u32 parity) {
  emulation::wait_until([&] { return barrier_test(barrier, parity); });
}
inline void async_proxy_fence() {}
inline void named_sync(int name, int threads) { emulation::arrive_and_wait(emulation::state.named[name], threads); }

}  // namespace tconv::device::ptx
