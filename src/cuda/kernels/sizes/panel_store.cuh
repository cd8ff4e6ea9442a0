// Sizes of the panel kernel's epilogue. A warp stages eight rows of the product at a time, or its 16, one run for each
// line and each product, or for each row of positions that it covers; where products are flat, for all rows of
// positions. Channels last, a warpgroup stages a few positions of all rows at a time.
#pragma once

#include "sizes/panel.cuh"

namespace tconv::device {

constexpr int panel_runs(const GemmConfig& c) { return c.panel_flat ? panel_flat_rows(c) : 1; }
constexpr int panel_run_width(const GemmConfig& c) {
  return c.panel_flat || c.product_rows > 1 ? c.box.w : c.panel_columns;
}
/// Passes of a warp's 16 rows: all at once where a line is all of them, or a thread's two rows are neighbours.
constexpr int panel_passes(const GemmConfig& c) { return c.width_slots > 8 || c.row_pairs ? 1 : 2; }
constexpr int panel_pass_lines(const GemmConfig& c) { return max_of(16 / panel_passes(c) / c.width_slots, 1); }
/// Rows that are whole lines: eight, or the 16 of a warp.
constexpr bool are_whole_lines(int width_slots) { return 8 % width_slots == 0 || width_slots == 16; }
/// The lanes that have sums of a line.
constexpr int panel_line_lanes(const GemmConfig& c) {
  return c.row_pairs ? 2 * c.width_slots : min_of(4 * c.width_slots, warp_size);
}
/// Flat products cover whole rows. Where rows of outputs are aligned, so are staged runs, which may begin before them.
constexpr int panel_flat_skew(const GemmConfig& c) {
  const int v = store_vector(c), first = c.first_position.w * c.stride.w - c.padding.w;
  return (first % v + v) % v;
}
/// Runs of a product, the last one of which has fewer rows perhaps; or products of a run; and runs of a member.
constexpr int product_runs(const GemmConfig& c) { return ceil_div(c.product_rows, c.run_rows); }
constexpr int run_products(const GemmConfig& c) { return c.product_rows == 1 ? c.run_rows : 1; }
constexpr int member_runs(const GemmConfig& c) { return c.position_tiles / run_products(c) * product_runs(c); }

// Where runs are several whole rows:
/// how many lines are one run, and of how many rows of outputs each row of positions is,
constexpr int run_lines(const GemmConfig& c) { return c.whole_rows ? c.line_phases : 1; }
constexpr int run_height(const GemmConfig& c) { return c.whole_rows ? c.run_phases : 1; }
constexpr int panel_pass_runs(const GemmConfig& c) { return panel_pass_lines(c) / run_lines(c); }
/// whether they have outputs of phases without taps,
constexpr bool runs_have_gaps(const GemmConfig& c) {
  return c.width_phases < c.stride.w || c.line_phases < c.run_phases;
}
/// how many outputs before its row the first position begins,
constexpr int row_lead(const GemmConfig& c) { return c.padding.w - c.first_position.w * c.stride.w; }
/// and how many positions at the end of a box's row may be beyond it.
constexpr int most_beyond_row = 8;
constexpr bool joins_whole_rows(const GemmConfig& c, int out_width) {
  const int beyond = c.box.w * c.stride.w - row_lead(c) - out_width;
  if (c.run_phases < c.stride.h) return false;
  // Flat products have every row as it is, and begin with the first one.
  if (c.panel_flat)
    return row_lead(c) == 0 && beyond == 0 && c.first_position.h * c.stride.h == c.padding.h && !runs_have_gaps(c) &&
           !c.fills;
  return row_lead(c) >= 0 && beyond >= 0 && beyond <= most_beyond_row * c.stride.w;
}

/// Elements between two staged runs; of flat products, between two rows.
constexpr int panel_run_stride(const GemmConfig& c) {
  const int v = store_vector(c), width = panel_run_width(c) * c.stride.w * run_height(c);
  if (c.panel_flat) return c.whole_rows ? width : round_up(panel_flat_skew(c) + width, v);
  return round_up(width * c.run_rows + v - 1, v);
}
/// Runs that flat products have of a line.
constexpr int flat_runs_of_line(const GemmConfig& c) { return box_rows(c) / c.run_rows; }
/// Elements between two staged lines: so many words modulo 32 that lanes of different lines write to different banks.
constexpr int panel_line_stride(const GemmConfig& c) {
  const int words = ceil_div(panel_runs(c) * panel_run_stride(c) * element_bytes(c), 4);
  const int residue = c.whole_rows && c.stride.w > 1 && element_bytes(c) == 4         ? 32 / panel_pass_runs(c)
                      : c.row_pairs                                                   ? c.width_slots == 8 ? 4 : 8
                      : element_bytes(c) == 2 && (c.stride.w == 1 || c.stride.w == 4) ? 4 * c.stride.w
                                                                                      : 8;
  return pad_to_bank(words, residue) * 4 / element_bytes(c);
}
constexpr int panel_staging_bytes(const GemmConfig& c) {
  return round_up(panel_pass_runs(c) * panel_line_stride(c) * element_bytes(c), 16);
}

// Channels last.
/// Channels last, how many channels are stored at once: those of 16 bytes, or fewer where they are not aligned for it.
constexpr int channel_vector(const GemmConfig& c) {
  int v = store_vector(c);
  while (v > 1 && (c.y_channels < v || c.channels_per_block % v != 0 || c.group_out % v != 0)) v /= 2;
  return v;
}
/// Positions of a warpgroup that are staged at a time.
constexpr int staged_columns(const GemmConfig& c) { return min_of(64 / element_bytes(c), c.panel_columns); }
/// Elements between two positions: lanes write two words of four positions, or four of eight.
constexpr int staged_pitch(const GemmConfig& c) {
  return pad_to_bank(c.rows * element_bytes(c) / 4, 4) * 4 / element_bytes(c);
}

/// Sums of a warp that the other block of its cluster adds and stores: of half of its 16 rows.
constexpr int clustered_sums(const GemmConfig& c) { return 8 * c.panel_columns * c.position_tiles; }

/// Of one warp: the staged rows and, where products are flat, tables of their rows and lines.
constexpr int panel_store_bytes(const GemmConfig& c) {
  // Products of 64 rows read more than the last weights where there are fewer, and those that cover a halo a little
  // more than the last panel.
  const int beyond = (panel_rows - c.rows) * 8 + (c.panel_flat || c.product_rows > 1 ? 128 : 0);
  // A warpgroup agrees here on who is last; or a warp receives the sums of its half of the rows.
  const int added = c.clustered ? clustered_sums(c) * 4 : c.depth_splits > 1 ? 16 : 0;
  const int read = max_of(beyond, added);
  if (c.channel_rows) {  // a quarter of what the warpgroup stages
    const int staged = 2 * staged_columns(c) * staged_pitch(c) * element_bytes(c) / 4;
    return max_of(round_up(staged, 16), read);
  }
  return max_of(
      panel_staging_bytes(c) + (c.panel_flat ? (flat_runs_of_line(c) + panel_pass_lines(c)) * run_entry_bytes : 0),
      read);
}

}  // namespace tconv::device
