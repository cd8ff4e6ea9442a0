// The configuration of the implicit-GEMM kernels, and every size that follows from it.
//
// Host and device compile this file: the planner fills a GemmConfig and asks how much shared memory it
// takes, the generated source carries the same values, and the kernels take them as one template
// argument. Batch and lengths are not in it. (NVRTC compiles with --device-as-default-execution-space.)
#pragma once

namespace tconv::device {

/// One integer per spatial dimension, [depth, height, width].
struct Int3 {
  int d, h, w;
  constexpr bool operator==(const Int3&) const = default;
};

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }
constexpr int max_of(int a, int b) { return a > b ? a : b; }
constexpr int min_of(int a, int b) { return a < b ? a : b; }
constexpr int volume(Int3 v) { return v.d * v.h * v.w; }

/// The smallest number at or above `value` that is `residue` modulo 32: strides with residue 8 let a
/// warp read four rows of eight words from 32 different banks.
constexpr int pad_to_bank(int value, int residue) {
  return value + ((residue - value) % 32 + 32) % 32;
}

constexpr int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }

enum class Math { fp32, tf32, f16, bf16 };

struct GemmConfig {
  // The layer.
  Math math;
  int groups, group_in, group_out;
  Int3 kernel, stride, padding, dilation;
  Int3 first_position;  // the smallest q that has an output
  Int3 reach;           // the largest shift

  // Memory.
  bool x_channels_last;
  bool y_rows;   // outputs of a row are contiguous: store whole runs
  int x_vector;  // words a copy of x moves; 0: one 16-bit element

  // Row blocks, see RowPlan.
  int types, channel_blocks, channels_per_block;
  bool phase_major;       // a row tile holds one phase of 16 channels
  int width_phases;       // phases along the width that have taps
  int stage_group_tiles;  // row tiles that hold complete lines
  int stage_group_lines;
  bool masked;  // some row tiles skip some steps

  // The tile.
  Int3 box;  // columns
  int warps_m, warps_n, tiles_m, tiles_n;
  int chunk_words;  // channel words of an x tile: 4, or octets of 8
  int steps_per_slab;
  int stages, x_stages;
  int resident_steps;  // > 0: all weights stay in shared memory, this many steps of each octet
  int blocks_per_sm;

  // The wgmma kernel (hopper_gemm.cuh).
  bool flattened;         // columns run over the rows of the x tile, halo included
  int raw_stages;         // pieces of x tiles as they are copied, before they are transposed
  int warp_rows_per_pass;  // of the epilogue; 0: all

  constexpr bool operator==(const GemmConfig&) const = default;
};

constexpr int warp_size = 32;

constexpr int threads_of(const GemmConfig& c) { return c.warps_m * c.warps_n * warp_size; }
constexpr int channels_per_word(const GemmConfig& c) {
  return c.math == Math::f16 || c.math == Math::bf16 ? 2 : 1;
}
constexpr int chunks_of(const GemmConfig& c) {
  return ceil_div(c.group_in, c.chunk_words * channels_per_word(c));
}

constexpr int columns_of(const GemmConfig& c) { return c.warps_n * c.tiles_n * 8; }

// The x tile. Copies along the width start at multiples of the vector, `lead` words before the first
// position the box needs.
constexpr int x_lead(const GemmConfig& c) {
  const int v = c.x_channels_last ? 1 : max_of(c.x_vector, 1);
  return ((c.first_position.w - c.reach.w) % v + v) % v;
}
constexpr Int3 x_extent(const GemmConfig& c) {
  const int v = c.x_channels_last ? 1 : max_of(c.x_vector, 1);
  return {c.box.d + c.reach.d, c.box.h + c.reach.h, round_up(x_lead(c) + c.box.w + c.reach.w, v)};
}
constexpr int x_word_stride(const GemmConfig& c) {
  return c.x_channels_last ? 1 : pad_to_bank(volume(x_extent(c)), 8);
}
constexpr int x_position_stride(const GemmConfig& c) {
  return c.x_channels_last ? c.chunk_words + 4 : 1;
}
constexpr int x_tile_words(const GemmConfig& c) {
  return c.x_channels_last ? volume(x_extent(c)) * x_position_stride(c) : c.chunk_words * x_word_stride(c);
}
/// Where in the x tile a step with this shift finds the first column's position.
constexpr int step_offset(const GemmConfig& c, Int3 shift) {
  const Int3 e = x_extent(c);
  return (((c.reach.d - shift.d) * e.h + c.reach.h - shift.h) * e.w + x_lead(c) + c.reach.w - shift.w) *
         x_position_stride(c);
}

/// The first column of a row of positions of the box.
constexpr int column_of_row(const GemmConfig& c, int d, int h) {
  const Int3 e = x_extent(c);
  return c.flattened ? (d * e.h + h) * e.w : (d * c.box.h + h) * c.box.w;
}

// The weight slab: `steps_per_slab` steps of each octet of channel words.
/// Octets of channel words in all; a layer of at most four words has one, with two steps in it.
constexpr int octets_of(const GemmConfig& c) { return ceil_div(c.group_in, 8 * channels_per_word(c)); }
constexpr int row_tiles_of(const GemmConfig& c) { return c.warps_m * c.tiles_m; }
constexpr int substeps_of(const GemmConfig& c) {
  return c.chunk_words >= 8 ? c.chunk_words / 8 : 1;
}
/// The A fragments of one octet and step.
constexpr int step_words(const GemmConfig& c) { return row_tiles_of(c) * warp_size * 4; }
constexpr int slab_words(const GemmConfig& c) { return substeps_of(c) * c.steps_per_slab * step_words(c); }
constexpr int weight_ring_words(const GemmConfig& c) {
  return c.resident_steps ? octets_of(c) * c.resident_steps * step_words(c) : c.stages * slab_words(c);
}

// The epilogue: a staging buffer, with a slot for every phase along the width, and two line tables.
constexpr bool spans_warps(const GemmConfig& c) { return c.stage_group_tiles > c.tiles_m; }
/// Warp rows that stage at the same time.
constexpr int staging_warps(const GemmConfig& c) { return c.warp_rows_per_pass ? c.warp_rows_per_pass : c.warps_m; }
constexpr int store_passes(const GemmConfig& c) {
  return spans_warps(c) ? 1 : c.tiles_m / c.stage_group_tiles * (c.warps_m / staging_warps(c));
}
constexpr int pass_lines(const GemmConfig& c) {
  return (spans_warps(c) ? 1 : staging_warps(c)) * c.stage_group_lines;
}
constexpr int block_lines(const GemmConfig& c) { return pass_lines(c) * store_passes(c); }
/// Fragments are written in pairs of columns, rows 4 apart in a half warp: a stride of 8 mod 32 keeps them
/// apart. Channels-last stores read down the lines instead: an odd stride does for them.
constexpr int line_stride(const GemmConfig& c) { return pad_to_bank(columns_of(c) * c.stride.w, c.y_rows ? 8 : 1); }
/// Vectors at the end of the last run may be read past it.
constexpr int staging_words(const GemmConfig& c) { return round_up(pass_lines(c) * line_stride(c) + 16, 4); }
constexpr int line_bytes = 24;
constexpr int epilogue_bytes(const GemmConfig& c) { return staging_words(c) * 4 + 2 * block_lines(c) * line_bytes; }

constexpr int shared_bytes(const GemmConfig& c) {
  return (weight_ring_words(c) + c.x_stages * round_up(x_tile_words(c), 4)) * 4 + epilogue_bytes(c);
}

// The wgmma kernel: 32 channel words are a row of 128 bytes. Tiles start at multiples of 1024 bytes.
constexpr int hopper_chunk = 32;
constexpr int hopper_row_bytes = 128;
/// Rows of the transposed x tile: every column, shifted by the farthest step.
constexpr int hopper_x_rows(const GemmConfig& c) {
  return round_up(max_of(volume(x_extent(c)), columns_of(c) + step_offset(c, {0, 0, 0})), 8);
}
constexpr int hopper_x_bytes(const GemmConfig& c) { return hopper_x_rows(c) * hopper_row_bytes; }
/// x is copied in pieces of half a chunk, so that one is on its way while another is transposed.
constexpr int hopper_piece = 16;
constexpr int hopper_raw_bytes(const GemmConfig& c) { return hopper_piece * x_word_stride(c) * 4; }
constexpr int hopper_step_bytes(const GemmConfig& c) { return row_tiles_of(c) * 16 * hopper_row_bytes; }
constexpr int hopper_barriers(const GemmConfig& c) { return 2 * (c.x_stages + c.stages) + 3; }
constexpr int hopper_weight_bytes(const GemmConfig& c) {
  return (c.resident_steps ? c.resident_steps * chunks_of(c) : c.stages) * hopper_step_bytes(c);
}
constexpr int hopper_shared_bytes(const GemmConfig& c) {
  return 1024 + round_up(c.x_stages * hopper_x_bytes(c), 1024) + round_up(hopper_weight_bytes(c), 1024) +
         c.raw_stages * hopper_raw_bytes(c) + 2 * round_up(epilogue_bytes(c), 16) + hopper_barriers(c) * 8;
}

}  // namespace tconv::device
