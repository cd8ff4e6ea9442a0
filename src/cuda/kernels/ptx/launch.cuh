// griddepcontrol (sm_90): a kernel that begins while the one before it ends.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

/// The next kernel may begin, as far as there is room, once all blocks of this one have come here.
__device__ inline void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// Waits until the kernel before this one is complete, and sees what it wrote.
__device__ inline void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace tconv::device::ptx
