// Emulated clusters: addresses in other blocks have the number of the block in their upper bits.
#pragma once

#include "ptx/async_copy.cuh"
#include "ptx/barrier.cuh"

namespace tconv::device::ptx {

inline void cluster_sync() {
  emulation::Cluster& cluster = emulation::cluster;
  emulation::synchronize(cluster.barrier, int(cluster.blocks.size() * blockDim.x));
}
inline u32 address_in_block(u32 shared, u32 rank) {
  emulation::require(rank < emulation::cluster.blocks.size() && rank != emulation::cluster.running,
                     "an address in no other block of the cluster");
  return shared | rank << 24;
}
inline void cluster_store(u32 address, float a, float b) {
  const u32 at = address & 0xffffff;
  emulation::require(at % 8 == 0 && at + 8 <= emulation::shared_bytes, "a misaligned store to another block");
  unsigned char* const memory = emulation::cluster.memories[address >> 24].data();
  emulation::races::stores_to_block(address >> 24, at, 8);
  std::memcpy(memory + at, &a, 4), std::memcpy(memory + at + 4, &b, 4);
}
inline void cluster_arrive(u32 barrier) {
  emulation::Block& block = emulation::cluster.blocks[barrier >> 24];
  bool alive = false;
  for (const emulation::Fiber& fiber : block.fibers) alive = alive || !fiber.done;
  emulation::require(alive, "an arrival at a block that has ended");
  const auto at = block.phases.find(barrier & 0xffffff);
  emulation::require(at != block.phases.end(), "a barrier that was never initialised");
  emulation::races::uses_barrier(barrier >> 24, barrier & 0xffffff);
  emulation::races::arrive(at->second.meeting);
  --at->second.pending;
  complete_if_due(at->second);
}
inline void cluster_wait(u32 barrier, u32 parity) { barrier_wait(barrier, parity); }

}  // namespace tconv::device::ptx
