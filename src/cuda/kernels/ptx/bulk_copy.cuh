// cp.async.bulk (sm_90): contiguous copies by the copy engine, issued by one thread. Addresses and sizes are
// multiples of 16 bytes.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

/// From global to shared memory; completes on a barrier that expects the bytes.
__device__ inline void bulk_load(u32 shared, const void* global, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

/// From shared to global memory; belongs to the group this thread commits next.
__device__ inline void bulk_store(void* global, u32 shared, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared), "r"(bytes)
               : "memory");
}
__device__ inline void commit_bulk_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until all but the newest `Pending` groups of this thread have read their shared memory.
template <int Pending>
__device__ inline void wait_bulk_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

}  // namespace tconv::device::ptx
