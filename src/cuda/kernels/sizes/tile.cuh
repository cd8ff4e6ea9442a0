// Sizes that all implicit-GEMM kernels share: the box of positions that is a tile, the x it reads, and its outputs.
#pragma once

#include "gemm_config.cuh"

namespace tconv::device {

// The box.
/// Columns of one box, and how far the next box along the width is away.
constexpr int box_positions(const GemmConfig& c) { return c.images * volume(c.box); }
constexpr int box_advance(const GemmConfig& c) {
  // Boxes start where copies of x may start.
  const int step = max_of(max_of(4, c.x_vector) / c.x_phases, 1);
  return c.window > 1 ? (c.box.w - ceil_div(c.window - 1, c.stride.w)) / step * step : c.box.w;
}
constexpr int box_rows(const GemmConfig& c) { return c.images * c.box.d * c.box.h; }

// The x tile. Copies along the width start at multiples of the vector, `lead` positions before the first one that the
// box needs.
constexpr int x_alignment(const GemmConfig& c) { return c.x_channels_last ? 1 : max_of(c.x_vector / c.x_phases, 1); }
constexpr int x_lead(const GemmConfig& c) {
  const int v = x_alignment(c);
  return ((c.first_position.w - c.reach.w) % v + v) % v;
}
/// Whether taps reach so far along depth and height that panels of one shift are weighed: most of others is halo.
constexpr bool reaches_far(Int3 reach) { return (1 + reach.d) * (1 + reach.h) >= 12; }
/// How far the halo of a box reaches along depth and height.
constexpr int halo_depth(const GemmConfig& c) { return panels_by_shift(c) ? 0 : c.reach.d; }
constexpr int halo_height(const GemmConfig& c) { return panels_by_shift(c) ? 0 : c.reach.h; }
constexpr Int3 x_extent(const GemmConfig& c) {
  const int width = round_up(x_lead(c) + c.box.w + c.reach.w, x_alignment(c));
  return {c.box.d + halo_depth(c) - c.shared_halo.d, c.box.h + halo_height(c) - c.shared_halo.h,
          width - c.shared_halo.w};
}
/// Images whose rows lie side by side in the x tile: taps along depth and height are whole rows of all of them away,
/// and a product of some of these rows covers no halo but that along the width.
constexpr int rows_beside(const GemmConfig& c) { return c.rows_beside ? c.images : 1; }
/// Of what is turned together: of an x tile, or where x is turned once for all boxes, of what those of all boxes read
/// that differ in their places along depth and height.
template <class Boxes>
constexpr Int3 turned_extent(const GemmConfig& c, const Boxes& boxes) {
  const Int3 e = x_extent(c);
  return c.turned_once ? Int3{c.reach.d + boxes.d.by * c.box.d, c.reach.h + boxes.h.by * c.box.h, e.w} : e;
}
/// Positions of the tile, halo included, and the zeros that the last row shares with none; and its inputs.
constexpr int tile_positions(const GemmConfig& c) {
  const Int3 e = x_extent(c), shared = c.shared_halo;
  return max_of(c.images, 1) * volume(e) + (shared.d * e.h + shared.h) * e.w + shared.w;
}
constexpr int x_inputs(const GemmConfig& c) { return c.x_phases * tile_positions(c); }
/// What keeps the words of a fragment, of four channels and eight positions, in different banks: of 64 bits, those of
/// four positions, which are read at a time.
constexpr int x_word_stride(const GemmConfig& c) {
  if (c.x_channels_last) return 1;
  return word_bytes(c) == 8 ? pad_to_bank(x_inputs(c), 4, 16) : pad_to_bank(x_inputs(c), 8);
}
constexpr int x_position_stride(const GemmConfig& c) {
  if (!c.x_channels_last) return 1;
  return word_bytes(c) == 8 ? pad_to_bank(c.chunk_words, 4, 8) : c.chunk_words + 4;
}
constexpr int x_tile_words(const GemmConfig& c) {
  return c.x_channels_last ? x_inputs(c) * x_position_stride(c) : c.chunk_words * x_word_stride(c);
}
/// Channels first, how many loading threads lie side by side along positions, in units of a copy; the others walk
/// down the chunk. Few spread the work evenly over warps, many keep the offsets of a thread few.
constexpr int x_units(const GemmConfig& c) { return x_inputs(c) / max_of(c.x_vector, 1); }
constexpr int x_unit_lanes(const GemmConfig& c) {
  int lanes = warp_size;
  while (ceil_div(x_units(c), lanes) > 6 && lanes < loading_threads(c)) lanes *= 2;
  return lanes;
}
/// Panels hold the first input of every position, then the second of every position, ...: how far these are apart.
/// Eight lanes write neighbouring inputs, of several slices where channels are last, and their banks must differ.
constexpr int x_phase_stride(const GemmConfig& c) {
  const int positions = tile_positions(c);
  if (c.x_phases == 1) return positions;
  const int neighbours = c.x_channels_last ? 32 / c.chunk_words : 8, residue = max_of(neighbours / c.x_phases, 1);
  return positions + ((residue - positions) % 8 + 8) % 8;
}
/// Where in the x tile a step with this shift finds the first column's position. Along the width shifts are inputs.
constexpr int step_offset(const GemmConfig& c, Int3 shift) {
  const Int3 e = x_extent(c);
  const int w = c.x_phases * (x_lead(c) + c.reach.w) - shift.w;
  const int d = panels_by_shift(c) ? 0 : c.reach.d - shift.d, h = panels_by_shift(c) ? 0 : c.reach.h - shift.h;
  return ((d * e.h + h) * rows_beside(c) * e.w + w / c.x_phases + w % c.x_phases * x_phase_stride(c)) *
         (c.panel_columns ? 1 : x_position_stride(c));
}

/// The smallest phase along depth, height and width: 0, or one below it where positions begin with the first output of
/// every phase (from_first_output in row_plan.hpp).
constexpr int first_phase(int first_position, int stride, int padding) {
  return min_of(padding - first_position * stride, 0);
}
constexpr Int3 first_phase(const GemmConfig& c) {
  return {first_phase(c.first_position.d, c.stride.d, c.padding.d),
          first_phase(c.first_position.h, c.stride.h, c.padding.h), 0};
}

/// Outputs from an input to the next along the width: the layer's stride.
constexpr int input_stride(const GemmConfig& c) { return c.stride.w / c.x_phases; }
/// Phases along the width with and without taps.
constexpr bool phase_has_taps(int phase, int kernel, int stride, int dilation) {
  for (int k = 0; k < min_of(kernel, stride); ++k)
    if (k * dilation % stride == phase) return true;
  return false;
}
constexpr bool phase_has_taps(const GemmConfig& c, int phase) {
  return phase_has_taps(phase % input_stride(c), c.kernel.w, input_stride(c), c.dilation.w);
}
constexpr int phase_with_taps(const GemmConfig& c, int index) {
  int phase = 0;
  while (!phase_has_taps(c, phase) || index-- > 0) ++phase;
  return phase;
}

// Outputs.
/// Elements that are stored at once.
constexpr int store_vector(const GemmConfig& c) { return 16 / element_bytes(c); }
/// Lines of a wide block, and bytes that describe a run of outputs.
constexpr int lines_of_block(const GemmConfig& c) { return c.rows / c.width_slots; }
constexpr int run_entry_bytes = 16;

}  // namespace tconv::device
