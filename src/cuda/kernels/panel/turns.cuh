// Warpgroups that multiply one at a time. Side by side they would all multiply at half the speed, then all store,
// and the tensor cores would wait. They have equally many tiles, or the first ones have one more.
#pragma once

#include "panel/shared.cuh"
#include "team.cuh"

namespace tconv::device {

template <GemmConfig C>
struct PanelTurns {
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  int index = Roles::team() * members_of(C) + Roles::member();
  u32 parity = index == 0 ? 1 : 0;  // nobody is before the first one at first

  __device__ void wait() {
    if constexpr (C.in_turns) ptx::barrier_wait(Shared::turn(index), parity), parity ^= 1;
  }
  /// All products of the tile are issued.
  __device__ void pass() const {
    if constexpr (C.in_turns) release(Shared::turn(index + 1 == multiplying_warpgroups(C) ? 0 : index + 1));
  }
};

}  // namespace tconv::device
