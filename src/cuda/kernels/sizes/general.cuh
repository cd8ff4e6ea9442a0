// Sizes of the general kernel (implicit_gemm.cuh): its epilogue and its shared memory.
#pragma once

#include "sizes/tile.cuh"
#include "sizes/weights.cuh"

namespace tconv::device {

constexpr int columns_of(const GemmConfig& c) { return c.warps_n * c.tiles_n * 8; }

// The epilogue: a staging buffer, with a slot for every phase along the width, and two line tables.
constexpr bool spans_warps(const GemmConfig& c) { return c.stage_group_tiles > c.tiles_m; }
constexpr int store_passes(const GemmConfig& c) { return spans_warps(c) ? 1 : c.tiles_m / c.stage_group_tiles; }
constexpr int pass_lines(const GemmConfig& c) { return (spans_warps(c) ? 1 : c.warps_m) * c.stage_group_lines; }
constexpr int block_lines(const GemmConfig& c) { return pass_lines(c) * store_passes(c); }
/// Fragments are written in pairs of columns, rows 4 apart in a half warp: a stride of 8 mod 32 keeps them
/// apart. Channels-last stores read down the lines instead: an odd stride does for them.
constexpr int line_stride(const GemmConfig& c) {
  return pad_to_bank(columns_of(c) * c.stride.w, c.y_rows ? 8 : 1, 128 / word_bytes(c));
}
/// Vectors at the end of the last run may be read past it.
constexpr int staging_words(const GemmConfig& c) { return round_up(pass_lines(c) * line_stride(c) + 16, 4); }
/// What is known of a line.
constexpr int line_bytes(const GemmConfig& c) { return 16 + 2 * word_bytes(c); }
constexpr int epilogue_bytes(const GemmConfig& c) {
  return staging_words(c) * word_bytes(c) + 2 * block_lines(c) * line_bytes(c);
}

constexpr int shared_bytes(const GemmConfig& c) {
  return (weight_ring_words(c) + c.x_stages * round_up(x_tile_words(c), 4)) * word_bytes(c) + epilogue_bytes(c);
}

}  // namespace tconv::device
