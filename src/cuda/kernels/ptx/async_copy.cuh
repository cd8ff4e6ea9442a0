// cp.async (sm_80): copies from global to shared memory that pass no register.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

__device__ inline u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

/// Copies `Bytes` (4, 8 or 16), or writes that many zeros and reads nothing where `valid` is false.
template <int Bytes>
__device__ inline void copy_async(u32 shared, const void* global, bool valid) {
  const u32 source_bytes = valid ? Bytes : 0;
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(source_bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(shared), "l"(global), "r"(source_bytes),
                 "n"(Bytes)
                 : "memory");
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until all but the newest `Pending` committed groups of this thread have arrived.
template <int Pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace tconv::device::ptx
