// Clusters (sm_90): blocks that run at the same time, and reach each other's shared memory.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

/// All threads of the cluster; what they wrote before, barriers they have initialised too, is seen by all.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// An address of shared memory, as it is in another block.
__device__ inline u32 address_in_block(u32 shared, u32 rank) {
  u32 address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}

/// To another block.
__device__ inline void cluster_store(u32 address, float a, float b) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(a), "f"(b) : "memory");
}
/// Arrives at another block's barrier; who waits there sees what was written before.
__device__ inline void cluster_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Waits for an arrival from another block.
__device__ inline void cluster_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ready;\n"
      "bra again;\n"
      "ready:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace tconv::device::ptx
