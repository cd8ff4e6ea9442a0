// Who does what in a block of the panel kernel. A block has teams; of a team, the first warpgroups fill panels, and
// each of the others is a member that multiplies and stores.
#pragma once

#include "gemm_config.cuh"
#include "ptx/barrier.cuh"

namespace tconv::device {

template <GemmConfig C>
struct PanelRoles {
  static constexpr int loaders = panel_loaders(C), team_threads = loaders + members_of(C) * warpgroup_size;
  __device__ static int team() { return threadIdx.x / team_threads; }
  /// Of a thread that multiplies: which warpgroup of the team it is in, the channel block it works on, and the part of
  /// the box.
  __device__ static int member() { return (Loaders::index() - loaders) / warpgroup_size; }
  __device__ static int block() { return member() / C.box_parts; }
  __device__ static int part() { return member() % C.box_parts; }
  /// And which of its warpgroup it is.
  __device__ static int thread() { return threadIdx.x % warpgroup_size; }

  /// The threads of a team that fill panels; the others multiply and store.
  struct Loaders {
    __device__ static int index() { return threadIdx.x % team_threads; }
    __device__ static void sync() { ptx::named_sync(1 + multiplying_warpgroups(C) + team(), loaders); }
  };
  /// A warpgroup that multiplies.
  struct Member {
    __device__ static void sync() { ptx::named_sync(1 + team() * members_of(C) + member(), warpgroup_size); }
  };
};

}  // namespace tconv::device
