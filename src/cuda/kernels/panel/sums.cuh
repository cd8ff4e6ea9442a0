// The sums of a warpgroup of the panel kernel, and how tiles that share the depth of a sum add theirs.
#pragma once

#include "launch_params.cuh"
#include "panel/roles.cuh"
#include "ptx/load.cuh"
#include "sizes/panel_team.cuh"
#include "tile.cuh"

namespace tconv::device {

/// What a thread has of them.
template <GemmConfig C>
using PanelSums = float[C.position_tiles][C.panel_columns / 2];

template <GemmConfig C>
__device__ void clear_sums(PanelSums<C>& sum) {
#pragma unroll
  for (int t = 0; t < C.position_tiles; ++t)
#pragma unroll
    for (int i = 0; i < C.panel_columns / 2; ++i) sum[t][i] = 0;
}

/// Sums of tiles that share the chunks of a depth.
template <GemmConfig C, class Tables>
struct PartialSums {
  static constexpr int position_tiles = C.position_tiles, registers = C.panel_columns / 2;
  using Roles = PanelRoles<C>;
  using Member = typename Roles::Member;
  using Sums = PanelSums<C>;

  /// Leaves the sums of a tile for the last one of those that share them; that one gets them all, added. `memory` is
  /// the warpgroup's own.
  __device__ static bool add(const ForwardParams& p, const Tile& tile, Sums& sum, u32* memory) {
    static_assert(C.turned && C.resident_steps == 0 && !C.in_turns, "turned x has memory for them");
    static_assert(C.depth_splits <= chunks_of(C) && all_types_have_steps(),
                  "who has no panel has not waited for zeros");
    constexpr int words = member_sums(C);
    const int place = tile.sum * members_of(C) + Roles::member();
    float* const parts = p.partials + i64(place) * C.depth_splits * words + Roles::thread();
#pragma unroll
    for (int t = 0; t < position_tiles; ++t)
#pragma unroll
      for (int i = 0; i < registers; ++i) parts[tile.split * words + (t * registers + i) * warpgroup_size] = sum[t][i];
    __threadfence();
    Member::sync();
    if (Roles::thread() == 0) *memory = atomicAdd(p.arrivals + place, 1u);
    Member::sync();
    const bool last = *memory + 1 == C.depth_splits;
    Member::sync();
    if (!last) return false;
    __threadfence();
    clear_sums<C>(sum);
#pragma unroll 1
    for (int split = 0; split < C.depth_splits; ++split)
#pragma unroll
      for (int t = 0; t < position_tiles; ++t)
#pragma unroll
        for (int i = 0; i < registers; ++i)
          sum[t][i] += ptx::load_fresh(parts + split * words + (t * registers + i) * warpgroup_size);
    return true;
  }

 private:
  __device__ static constexpr bool all_types_have_steps() {
    for (int type = 0; type < C.types; ++type)
      if (Tables::steps(type) == 0) return false;
    return true;
  }
};

}  // namespace tconv::device
