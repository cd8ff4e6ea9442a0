// Sizes of the panel kernel (panel_gemm.cuh): panels, who fills them, and products. Products have 64 rows; of rows that
// the plan does not have they read what lies there, and nothing is stored. A panel is a chunk of x as wgmma reads it:
// slices of 16 bytes of channels, [slice][position].
//
// Mapped x (16 bits, no halo) stays as it lies in memory: [product][64 positions][channel][position], 128 bytes of
// positions a channel, swizzled as the copy engine and wgmma agree on.
#pragma once

#include "sizes/tile.cuh"
#include "sizes/weights.cuh"

namespace tconv::device {

constexpr int panel_slices(const GemmConfig& c) { return c.chunk_words / 4; }
/// Positions from a slice to the next. Channels last, eight lanes write neighbouring slices: their banks must
/// differ.
constexpr int panel_slice_stride(const GemmConfig& c) {
  const int positions = c.x_phases * x_phase_stride(c), residue = 8 / panel_slices(c);
  return c.x_channels_last ? positions + ((residue - positions) % 8 + 8) % 8 : positions;
}
constexpr int panel_slice_bytes(const GemmConfig& c) { return panel_slice_stride(c) * 16; }
/// In fp32 heads, then remainders.
constexpr int panel_part_bytes(const GemmConfig& c) { return panel_slices(c) * panel_slice_bytes(c); }
/// Behind them where x is scaled: the scale, and the largest numbers of its inputs, one for each warp that filled the
/// panel.
constexpr int panel_scale_place(const GemmConfig& c) { return weight_parts(c) * panel_part_bytes(c); }
constexpr int panel_largest_place(const GemmConfig& c) { return panel_scale_place(c) + 16; }
/// Positions of a copy of mapped x, which is all channels of a chunk; copies of a product, and their bytes.
constexpr int mapped_positions = 64;
constexpr int mapped_channels(const GemmConfig& c) { return c.chunk_words * channels_per_word(c); }
constexpr int mapped_copies(const GemmConfig& c) { return ceil_div(c.panel_columns, mapped_positions); }
constexpr int mapped_copy_bytes(const GemmConfig& c) { return mapped_channels(c) * mapped_positions * 2; }
constexpr int mapped_product_bytes(const GemmConfig& c) { return mapped_copies(c) * mapped_copy_bytes(c); }
/// What the addresses of panels are multiples of: eight channels, where they are swizzled.
constexpr int panel_alignment(const GemmConfig& c) { return c.mapped ? 1024 : 128; }
constexpr int panel_bytes(const GemmConfig& c) {
  if (c.mapped) return c.position_tiles * mapped_product_bytes(c);
  return round_up(panel_scale_place(c) + (scales(c.math) ? 16 + 16 * c.loaders : 0), 128);
}

/// Copies that bring a panel of turned x: one, or where x was turned once for all boxes, one for each slice, each input
/// of a position and each layer of the x tile along the depth.
constexpr int panel_copies(const GemmConfig& c) {
  return c.turned_once ? weight_parts(c) * panel_slices(c) * c.x_phases * x_extent(c).d : 1;
}

// Who fills it: `lanes` threads side by side take units of one or two positions, the others further slices.
// Channels last, the slices of a position are side by side.
/// Positions that a thread loads together.
constexpr int panel_unit(const GemmConfig& c) { return c.x_vector >= 2 && !c.x_channels_last ? 2 : 1; }
constexpr int panel_units(const GemmConfig& c, int lanes) { return ceil_div(x_inputs(c) / panel_unit(c), lanes); }
constexpr int panel_depth(const GemmConfig& c, int lanes) {
  return ceil_div(panel_slices(c), panel_loaders(c) / lanes);
}
constexpr int panel_lanes(const GemmConfig& c) {
  if (c.x_channels_last) return panel_loaders(c) / panel_slices(c);
  int best = panel_loaders(c);
  for (int lanes = best / 2; lanes >= warp_size; lanes /= 2)
    if (panel_units(c, lanes) * panel_depth(c, lanes) < panel_units(c, best) * panel_depth(c, best)) best = lanes;
  return best;
}
/// Whether threads can fill panels: they keep a bit for each of their units.
constexpr bool fills_panels(const GemmConfig& c) {
  return x_inputs(c) % panel_unit(c) == 0 && panel_lanes(c) * panel_unit(c) % c.x_phases == 0 &&
         panel_units(c, panel_lanes(c)) <= 32;
}
/// Registers that hold a unit: the elements of a slice at one or two positions, where 16-bit ones take no less.
constexpr int panel_unit_registers(const GemmConfig& c) {
  if (c.x_channels_last) return channels_per_word(c) * element_bytes(c);
  return 4 * channels_per_word(c) * (element_bytes(c) == 2 ? 1 : panel_unit(c));
}
constexpr int filling_registers(const GemmConfig& c) {
  const int lanes = panel_lanes(c), units = panel_units(c, lanes);
  return c.fill_buffers * units * panel_depth(c, lanes) * panel_unit_registers(c) + 2 * units;
}

// Products.
constexpr int panel_rows = 64;
/// Products that share a row of positions.
constexpr int panels_per_row(const GemmConfig& c) {
  return c.panel_flat || c.product_rows > 1 ? 1 : c.box.w / c.panel_columns;
}
/// Rows of the x tile, and the row of it a row of the box is.
constexpr int x_row_of(const GemmConfig& c, int box_row) {
  const Int3 e = x_extent(c);
  const int h = box_row % c.box.h, slice = box_row / c.box.h;
  if (c.rows_beside) return (slice % c.box.d * e.h + h) * c.images + slice / c.box.d;
  return ((slice / c.box.d) * e.d + slice % c.box.d) * e.h + h;
}
/// Where a product's positions begin in the panel.
constexpr int panel_start(const GemmConfig& c, int tile) {
  if (c.panel_flat) return tile * c.panel_columns;
  return x_row_of(c, tile / panels_per_row(c) * c.product_rows) * x_extent(c).w +
         tile % panels_per_row(c) * c.panel_columns;
}
/// How much further in the panel the positions of the second part of the box begin; -1 where its products do not lie as
/// those of the first do.
constexpr int panel_part_stride(const GemmConfig& c) {
  const int stride = panel_start(c, c.position_tiles) - panel_start(c, 0);
  for (int tile = 1; tile < c.position_tiles; ++tile)
    if (panel_start(c, c.position_tiles + tile) - panel_start(c, tile) != stride) return -1;
  return stride;
}
/// Rows of the x tile a flat tile reaches.
constexpr int panel_flat_rows(const GemmConfig& c) { return x_row_of(c, box_rows(c) - 1) + 1; }

/// fp32: sums of a few products that are formed while others are added.
constexpr int split_buffers(const GemmConfig& c) { return c.panel_columns / 2 * (c.position_tiles + 2) <= 128 ? 2 : 1; }
/// fp32: steps whose products the tensor core sums: two or three octets, fewer where there are few in all.
constexpr int split_steps(const GemmConfig& c) {
  if (substeps_of(c) > 1 || short_sums(c)) return 1;
  return c.steps_per_slab % 3 == 0 ? 3 : min_of(2, c.steps_per_slab);
}

}  // namespace tconv::device
