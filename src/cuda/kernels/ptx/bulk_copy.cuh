// cp.async.bulk (sm_90): contiguous copies by the copy engine, issued by one thread. Addresses and sizes are
// multiples of 16 bytes. Its operands are uniform registers: lanes that issue copies of their own take turns.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

/// From global to shared memory; completes on a barrier that expects the bytes.
__device__ inline void bulk_load(u32 shared, const void* global, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}

}  // namespace tconv::device::ptx
