// griddepcontrol (sm_90): a kernel that begins while the one before it ends. Kernels are launched so, but for the one
// that turns much of x (launch_rules.cuh), and wait themselves before they read or write memory.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

#if __CUDA_ARCH__ >= 900
/// The next kernel may begin, as far as there is room, once all blocks of this one have come here.
__device__ inline void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// Waits until the kernel before this one is complete, and sees what it wrote.
__device__ inline void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
__device__ inline void let_next_begin() {}
__device__ inline void wait_for_previous() {}
#endif

/// At the end of a kernel that never says that the next one may begin: that one begins when all blocks have ended, and
/// what this thread has written is there for it without waiting.
__device__ inline void leave_for_next() { __threadfence(); }

/// Of a kernel that has nothing to prepare.
__device__ inline void begin_after_previous() {
  let_next_begin();
  wait_for_previous();
}

}  // namespace tconv::device::ptx
