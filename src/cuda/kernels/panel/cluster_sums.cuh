// Tiles that share the depth of a sum as blocks of a cluster of two. Each adds half of the rows: a warp gives its sums
// of the other half to the same warp of the other block, where they lie in the memory that rows are staged in until
// they are added. Half of the rows are one of a thread's two, or where these are paired, both of half of the lanes.
//
// Every lane arrives for what it has written or read itself: where the assembler knows that lanes have not parted, it
// leaves __syncwarp() out, and sanitizers do not see what one lane says for all.
#pragma once

#include "panel/shared.cuh"
#include "panel/sums.cuh"
#include "ptx/cluster.cuh"
#include "team.cuh"

namespace tconv::device {

template <GemmConfig C>
struct ClusterSums {
  static_assert(C.depth_splits == 2 && allows_clusters(C) && !C.in_turns);
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  Ring<1> received;
  bool began = false;

  /// Adds the sums of a tile. `memory` is the warp's own.
  __device__ void add(const Tile& tile, PanelSums<C>& sum, unsigned char* memory) {
    const int warp = Roles::member() * (warpgroup_size / warp_size) + Roles::thread() / warp_size;
    const u32 place_of_lane = C.row_pairs ? lane_index() % 16 * 16 : lane_index() * 8;
    const u32 own = ptx::shared_address(memory) + place_of_lane, other = u32(tile.split ^ 1);
    if (began) {  // rows of the tile before were staged there
      ptx::cluster_arrive(ptx::address_in_block(Shared::sums_empty(warp), other));
      ptx::cluster_wait(Shared::sums_empty(warp), received.parity ^ 1);
    }
    began = true;
    const u32 to = ptx::address_in_block(own, other);
    const bool second = tile.split != 0;                       // of the halves is stored here
    const bool stored_here = lane_index() / 16 == tile.split;  // of paired rows, those of this lane
    each_pair(sum, [&](float(&pair)[4], int place) {
      if constexpr (!C.row_pairs) {
        ptx::cluster_store(to + place, second ? pair[0] : pair[2], second ? pair[1] : pair[3]);
      } else if (!stored_here) {
        ptx::cluster_store(to + place, pair[0], pair[1]);
        ptx::cluster_store(to + place + 8, pair[2], pair[3]);
      }
    });
    ptx::cluster_arrive(ptx::address_in_block(Shared::sums_full(warp), other));
    ptx::cluster_wait(Shared::sums_full(warp), received.parity);
    received.advance();
    // Which of the halves is stored is not known to the compiler: both get the sums.
    each_pair(sum, [&](float(&pair)[4], int place) {
      // The first part of the depth comes first, whoever adds.
      if constexpr (C.row_pairs) {
        if (!stored_here) return;
        const float4 given = *reinterpret_cast<const float4*>(memory + place_of_lane + place);
        const float from[4] = {given.x, given.y, given.z, given.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) pair[i] = second ? from[i] + pair[i] : pair[i] + from[i];
      } else {
        const float2 given = *reinterpret_cast<const float2*>(memory + place_of_lane + place);
        pair[0] = pair[2] = second ? given.x + pair[2] : pair[0] + given.x;
        pair[1] = pair[3] = second ? given.y + pair[3] : pair[1] + given.y;
      }
    });
    __syncwarp();
  }

 private:
  /// Calls `visit(sums, place)` for a thread's sums of two columns, first those of the first half of the rows; `place`
  /// is where the memory of a warp has room for those of one half.
  template <class Visit>
  __device__ static void each_pair(PanelSums<C>& sum, const Visit& visit) {
#pragma unroll
    for (int t = 0; t < C.position_tiles; ++t)
#pragma unroll
      for (int n = 0; n < C.panel_columns / 8; ++n)
        visit(reinterpret_cast<float(&)[4]>(sum[t][n * 4]), (t * C.panel_columns / 8 + n) * warp_size * 8);
  }
};

struct NoClusterSums {};
template <GemmConfig C>
using SumsOfCluster = typename Select<C.clustered, ClusterSums<C>, NoClusterSums>::Type;

}  // namespace tconv::device
