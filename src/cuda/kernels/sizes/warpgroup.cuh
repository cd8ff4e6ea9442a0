// Sizes of the warpgroup kernel (warpgroup_gemm.cuh). Columns of the product are rows (phase, channel), its rows are
// positions.
#pragma once

#include "sizes/tile.cuh"
#include "sizes/weights.cuh"

namespace tconv::device {

/// Steps whose operands are read together: about four octets, and no step left alone where three divide a slab.
/// (fp32 splits operands, and takes one.)
constexpr int batch_steps_of(const GemmConfig& c) {
  if (c.math == Math::fp32) return 1;
  if (substeps_of(c) == 1 && c.steps_per_slab % 4 != 0 && c.steps_per_slab % 3 == 0) return 3;
  return max_of(1, min_of(4 / substeps_of(c), c.steps_per_slab));
}

// The epilogue: rows are staged as they leave, one run for each line and row of positions of the box, at the
// alignment the run has in memory.
/// Elements between two staged runs.
constexpr int run_stride(const GemmConfig& c) {
  return round_up(c.box.w * c.stride.w + store_vector(c) - 1, store_vector(c));
}
/// Elements between two staged lines. Lanes write four pairs of rows of eight positions each: with a stride of 4
/// modulo 16 words they fall into different banks.
constexpr int staged_line_stride(const GemmConfig& c) {
  const int words = ceil_div(box_rows(c) * run_stride(c) * element_bytes(c), 4);
  return (words + ((4 - words) % 16 + 16) % 16) * 4 / element_bytes(c);
}
constexpr int stage_lines(const GemmConfig& c) { return c.stage_rows / c.width_slots; }
/// A staging buffer, and with the table of its runs.
constexpr int staging_bytes(const GemmConfig& c) {
  return c.y_rows ? round_up(stage_lines(c) * staged_line_stride(c) * element_bytes(c), 128) : 0;
}
constexpr int stage_bytes(const GemmConfig& c) {
  return c.y_rows ? round_up(staging_bytes(c) + stage_lines(c) * box_rows(c) * run_entry_bytes, 128) : 0;
}
constexpr int row_line_bytes = 32;

constexpr int team_bytes(const GemmConfig& c) {
  return round_up(c.x_stages * round_up(x_tile_words(c), 32) * 4 + weight_ring_bytes(c) +
                      c.stage_buffers * stage_bytes(c) + 2 * lines_of_block(c) * row_line_bytes,
                  128);
}
constexpr int team_barriers(const GemmConfig& c) { return 2 * (c.x_stages + c.stages); }
constexpr int warpgroup_shared_bytes(const GemmConfig& c) {
  return 128 + resident_bytes(c) + c.teams * team_bytes(c) + (c.teams * team_barriers(c) + 1) * 8;
}

}  // namespace tconv::device
