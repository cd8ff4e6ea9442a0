// Sizes of a team of the panel kernel: shared memory, barriers, and sums that tiles share.
#pragma once

#include "sizes/panel_store.cuh"

namespace tconv::device {

constexpr int panel_team_bytes(const GemmConfig& c) {
  return round_up(
      c.panel_stages * panel_bytes(c) + c.team_blocks * weight_ring_bytes(c) + 4 * members_of(c) * panel_store_bytes(c),
      panel_alignment(c));
}
/// Weights that stay, before the panels.
constexpr int panel_resident_bytes(const GemmConfig& c) {
  return round_up(c.team_blocks * resident_bytes(c), panel_alignment(c));
}
constexpr int panel_team_barriers(const GemmConfig& c) { return 2 * (c.panel_stages + c.team_blocks * c.stages); }
/// Of each warp that multiplies, where sums come from another block: they are there, and there is room for more.
constexpr int clustered_barriers(const GemmConfig& c) { return c.clustered ? 2 * 4 * multiplying_warpgroups(c) : 0; }
constexpr int panel_shared_bytes(const GemmConfig& c) {
  const int turns = c.in_turns ? multiplying_warpgroups(c) : 0;
  return 128 + panel_resident_bytes(c) + c.teams * panel_team_bytes(c) +
         (c.teams * panel_team_barriers(c) + 1 + turns + clustered_barriers(c)) * 8;
}

/// Sums of a warpgroup that multiplies, and those that all tiles of a depth leave for the last of them.
constexpr int member_sums(const GemmConfig& c) { return panel_rows * c.panel_columns * c.position_tiles; }
constexpr int partial_bytes(const GemmConfig& c) {
  return c.depth_splits > 1 && !c.clustered ? c.depth_splits * members_of(c) * member_sums(c) * 4 : 0;
}

/// Whether the blocks of a cluster may share sums: a warp has two lines or more, and each block stores half of its
/// rows.
constexpr bool allows_clusters(const GemmConfig& c) {
  return c.teams == 1 && c.resident_steps == 0 && !c.channel_rows && c.width_slots <= 8 && !c.fills;
}

/// Whether warpgroups of a block may multiply one at a time: those that share panels or weights must find room for all
/// of a tile in their slots.
constexpr bool allows_turns(const GemmConfig& c) {
  const bool panels_stay = members_of(c) == 1 || (!panels_by_shift(c) && c.panel_stages >= chunks_of(c));
  return multiplying_warpgroups(c) > 1 && panels_stay && (c.box_parts == 1 || c.resident_steps > 0);
}

}  // namespace tconv::device
