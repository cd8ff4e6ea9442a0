// Emulated barriers.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

inline void barrier_init(u32 barrier, u32 arrivals) {
  emulation::require(barrier % 8 == 0, "a misaligned barrier");
  emulation::state.phases[barrier] = {int(arrivals), int(arrivals), 0, 0, {}};
  emulation::races::initialised(emulation::cluster.running, barrier);
}
inline void barrier_init_fence() {}
inline emulation::PhaseBarrier& phase_barrier(u32 barrier) {
  const auto at = emulation::state.phases.find(barrier);
  emulation::require(at != emulation::state.phases.end(), "a barrier that was never initialised");
  return at->second;
}
inline void barrier_arrive(u32 barrier) {
  emulation::PhaseBarrier& b = phase_barrier(barrier);
  emulation::races::uses_barrier(emulation::cluster.running, barrier);
  emulation::races::arrive(b.meeting);
  --b.pending;
  complete_if_due(b);
}
inline void barrier_arrive_copies(u32 barrier) {
  emulation::PhaseBarrier& b = phase_barrier(barrier);
  emulation::races::leaves_copies(b.meeting);
  --b.pending;
  complete_if_due(b);
}
inline void barrier_arrive_expect(u32 barrier, u32 bytes) {
  emulation::PhaseBarrier& b = phase_barrier(barrier);
  emulation::races::uses_barrier(emulation::cluster.running, barrier);
  emulation::races::arrive(b.meeting);
  b.bytes += bytes, --b.pending;
  complete_if_due(b);
}
inline bool barrier_test(u32 barrier, u32 parity) {
  const emulation::PhaseBarrier& b = phase_barrier(barrier);
  if (b.phase == parity) return false;
  emulation::races::uses_barrier(emulation::cluster.running, barrier);
  emulation::races::leave(b.meeting);
  return true;
}
inline void barrier_wait(u32 barrier, u32 parity) {
  emulation::wait_until([&] { return barrier_test(barrier, parity); });
}
inline void async_proxy_fence() { emulation::races::fence(); }
inline void named_sync(int name, int threads) { emulation::synchronize(emulation::state.named[name], threads); }

}  // namespace tconv::device::ptx
