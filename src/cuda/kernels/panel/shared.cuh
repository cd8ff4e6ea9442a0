// The shared memory of the panel kernel: weights that are there to stay, then for each team its panels, its rings of
// weights and what its epilogue passes through; then the barriers of all of them.
#pragma once

#include "panel/roles.cuh"
#include "ptx/async_copy.cuh"
#include "sizes/panel_team.cuh"

namespace tconv::device {

/// What a team has of it.
template <GemmConfig C>
struct PanelShared {
  u32 resident_weights;
  unsigned char* panels;
  u32 weights;
  unsigned char* store;
  u32 barriers;
  __device__ explicit PanelShared(int team) {
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int panels_bytes = C.panel_stages * panel_bytes(C);
    resident_weights = ptx::shared_address(memory);
    panels = memory + panel_resident_bytes(C) + team * panel_team_bytes(C);
    weights = ptx::shared_address(panels) + panels_bytes;
    store = panels + panels_bytes + C.team_blocks * weight_ring_bytes(C);
    barriers = resident_weights + panel_resident_bytes(C) + C.teams * panel_team_bytes(C) +
               (1 + team * panel_team_barriers(C)) * 8;
  }
  __device__ u32 panel_full(int slot) const { return barriers + slot * 8; }
  __device__ u32 panel_empty(int slot) const { return panel_full(C.panel_stages + slot); }
  __device__ u32 weights_full(int block, int slot) const {
    return panel_full(2 * (C.panel_stages + block * C.stages) + slot);
  }
  __device__ u32 weights_empty(int block, int slot) const { return weights_full(block, C.stages + slot); }
  /// The ring of weights of a channel block.
  __device__ u32 weights_of(int block) const { return weights + block * weight_ring_bytes(C); }
  __device__ static u32 weights_resident() { return PanelShared(0).barriers - 8; }
  /// Of a warp that multiplies, where sums come from the other block of a cluster.
  __device__ static u32 sums_full(int warp) { return PanelShared(C.teams).barriers + warp * 8; }
  __device__ static u32 sums_empty(int warp) { return sums_full(clustered_barriers(C) / 2 + warp); }
  /// Of a warpgroup that multiplies, where they take turns.
  __device__ static u32 turn(int index) { return PanelShared(C.teams).barriers + index * 8; }
};

}  // namespace tconv::device
