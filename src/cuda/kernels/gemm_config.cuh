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
constexpr int pad_to_bank(int value, int residue) { return value + ((residue - value) % 32 + 32) % 32; }

constexpr int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }

constexpr bool phase_has_taps(int phase, int kernel, int stride, int dilation) {
  for (int k = 0; k < min_of(kernel, stride); ++k)
    if (k * dilation % stride == phase) return true;
  return false;
}

/// `fp32` splits numbers into two TF32 numbers, `halves` scales them and splits them into two fp16 numbers: three
/// products of either kind are as good as one of fp32, and those of fp16 take half the time (mma/split.cuh). `half`
/// scales numbers and rounds them to one fp16 number, which has as many bits as one of TF32.
enum class Math { fp32, tf32, f16, bf16, halves, half };
constexpr bool splits(Math math) { return math == Math::fp32 || math == Math::halves; }
constexpr bool scales(Math math) { return math == Math::halves || math == Math::half; }
/// Of operands: two 16-bit numbers are a word.
constexpr int channels_per_word(Math math) { return math == Math::fp32 || math == Math::tf32 ? 1 : 2; }
/// Of an element in memory.
constexpr int element_bytes(Math math) { return math == Math::f16 || math == Math::bf16 ? 2 : 4; }

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
  int x_phases;           // neighbouring inputs along the width that are one position; `stride` is that of positions
  bool phase_major;       // a row tile holds one phase of 16 channels
  int width_phases;       // phases along the width that have taps
  int width_slots;        // rows of a line in wide blocks, some of them padding where there are more than phases
  int line_phases;        // phases along the height whose lines are neighbours, 1 or all
  int stage_group_tiles;  // row tiles that hold complete lines
  int stage_group_lines;
  bool masked;  // some row tiles skip some steps

  // The tile.
  Int3 box;  // columns
  int warps_m, warps_n, tiles_m, tiles_n;
  int chunk_words;  // channel words of an x tile: 4, or octets of 8
  int steps_per_slab;
  int stages, x_stages;
  int octet_group;     // octets of a step that lie together in packed weights of the warpgroup kernels
  int resident_steps;  // > 0: all weights stay in shared memory, this many steps of each octet
  int blocks_per_sm;

  // The warpgroup kernel (warpgroup_gemm.cuh); teams is 0 in the configuration of other kernels.
  int teams;           // warpgroups that multiply, with the threads that load for them
  int rows;            // of a block, a multiple of 8
  int position_tiles;  // of 64 positions each
  int images;          // of the batch, in one box
  int window;          // stored runs start at multiples of this many outputs; 1: where the box starts
  int stage_rows;      // rows that pass through shared memory at a time
  int stage_buffers;   // 1 or 2
  bool round_on_load;  // TF32: x is rounded in its tile, once for all taps, not where it is read
  int y_channels;      // neighbouring channels of an output that may be stored at once
  bool channel_rows;   // channels are the fastest index of rows, not phases: channels-last outputs

  // The panel kernel (panel_gemm.cuh), where panel_columns is not 0. A tile is `position_tiles` products of 64
  // rows by so many positions.
  int panel_columns;
  int panel_stages;
  int product_rows;  // rows of the box that a product covers, and the halo between them
  int run_rows;      // of these, or where products are flat of a slice of the box, how many whole rows of outputs are
                     // stored as one run; 1: each by itself
  int team_blocks;   // channel blocks of a team: each has a warpgroup that multiplies, and they share panels
  int box_parts;     // parts of a box that warpgroups of a team multiply by the same weights, 1 or 2
  int loaders;       // warpgroups of a team that fill panels, 1 or 2
  int fill_buffers;  // chunks of x a loading thread holds in registers, 1 or 2
  bool panel_flat;   // products run over the positions of the x tile, halo included, and not over rows of the box
  bool turned;       // x was turned into panels before (turn_x.cuh), and is copied
  Int3 shared_halo;  // of turned x: zeros behind a row, which are those before the next one; so of slices and images
  bool in_turns;     // warpgroups of a block multiply one at a time
  bool fills;        // types without taps are filled with the bias, and a team has all types of a box in turn
  int depth_splits;  // of turned x: tiles that share the chunks of one sum, and are added by the last of them; 1: none

  constexpr bool operator==(const GemmConfig&) const = default;
};

constexpr int warp_size = 32;

/// Sets of row blocks that tiles are made of: a block, or those that a team works on together.
constexpr int block_sets_of(const GemmConfig& c) { return c.types * (c.channel_blocks / c.team_blocks) * c.groups; }

constexpr int threads_of(const GemmConfig& c) { return c.warps_m * c.warps_n * warp_size; }

// The threads of the warpgroup kernel: one warpgroup loads, one for each team multiplies.
constexpr int warpgroup_size = 128;
/// Threads that load x for a team. Where weights are streamed, the other half of the warpgroup sees to them.
constexpr int x_loaders_of(const GemmConfig& c) {
  return c.teams > 2 ? warp_size : c.teams == 1 && c.resident_steps > 0 ? warpgroup_size : warpgroup_size / 2;
}
/// Threads that load x tiles together.
constexpr int loading_threads(const GemmConfig& c) { return c.teams ? x_loaders_of(c) : threads_of(c); }
constexpr int channels_per_word(const GemmConfig& c) { return channels_per_word(c.math); }
constexpr int chunks_of(const GemmConfig& c) { return ceil_div(c.group_in, c.chunk_words * channels_per_word(c)); }

/// The chunks of one of the tiles that share them: from this one up to the first one of the next.
constexpr int first_chunk(const GemmConfig& c, int split) { return split * chunks_of(c) / c.depth_splits; }

constexpr int columns_of(const GemmConfig& c) { return c.warps_n * c.tiles_n * 8; }

// The x tile. Copies along the width start at multiples of the vector, `lead` positions before the first one that the
// box needs.
constexpr int x_alignment(const GemmConfig& c) { return c.x_channels_last ? 1 : max_of(c.x_vector / c.x_phases, 1); }
constexpr int x_lead(const GemmConfig& c) {
  const int v = x_alignment(c);
  return ((c.first_position.w - c.reach.w) % v + v) % v;
}
constexpr Int3 x_extent(const GemmConfig& c) {
  const int width = round_up(x_lead(c) + c.box.w + c.reach.w, x_alignment(c));
  return {c.box.d + c.reach.d - c.shared_halo.d, c.box.h + c.reach.h - c.shared_halo.h, width - c.shared_halo.w};
}
/// Positions of the tile, halo included, and the zeros that the last row shares with none; and its inputs.
constexpr int tile_positions(const GemmConfig& c) {
  const Int3 e = x_extent(c), shared = c.shared_halo;
  return max_of(c.images, 1) * volume(e) + (shared.d * e.h + shared.h) * e.w + shared.w;
}
constexpr int x_inputs(const GemmConfig& c) { return c.x_phases * tile_positions(c); }
constexpr int x_word_stride(const GemmConfig& c) { return c.x_channels_last ? 1 : pad_to_bank(x_inputs(c), 8); }
constexpr int x_position_stride(const GemmConfig& c) { return c.x_channels_last ? c.chunk_words + 4 : 1; }
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
  return (((c.reach.d - shift.d) * e.h + c.reach.h - shift.h) * e.w + w / c.x_phases +
          w % c.x_phases * x_phase_stride(c)) *
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
constexpr bool phase_has_taps(const GemmConfig& c, int phase) {
  return phase_has_taps(phase % input_stride(c), c.kernel.w, input_stride(c), c.dilation.w);
}
constexpr int phase_with_taps(const GemmConfig& c, int index) {
  int phase = 0;
  while (!phase_has_taps(c, phase) || index-- > 0) ++phase;
  return phase;
}

// The weight slab: `steps_per_slab` steps of each octet of channel words.
/// Octets of channel words in all, some of zeros where groups of them are packed together; a layer of at most four
/// words has one, with two steps in it.
constexpr int octets_of(const GemmConfig& c) {
  return round_up(ceil_div(c.group_in, 8 * channels_per_word(c)), c.octet_group);
}
constexpr int row_tiles_of(const GemmConfig& c) { return c.warps_m * c.tiles_m; }
constexpr int substeps_of(const GemmConfig& c) { return c.chunk_words >= 8 ? c.chunk_words / 8 : 1; }
/// The A fragments of one octet and step.
constexpr int step_words(const GemmConfig& c) { return row_tiles_of(c) * warp_size * 4; }
constexpr int slab_words(const GemmConfig& c) { return substeps_of(c) * c.steps_per_slab * step_words(c); }
constexpr int weight_ring_words(const GemmConfig& c) {
  return c.resident_steps ? octets_of(c) * c.resident_steps * step_words(c) : c.stages * slab_words(c);
}

// The epilogue: a staging buffer, with a slot for every phase along the width, and two line tables.
constexpr bool spans_warps(const GemmConfig& c) { return c.stage_group_tiles > c.tiles_m; }
constexpr int store_passes(const GemmConfig& c) { return spans_warps(c) ? 1 : c.tiles_m / c.stage_group_tiles; }
constexpr int pass_lines(const GemmConfig& c) { return (spans_warps(c) ? 1 : c.warps_m) * c.stage_group_lines; }
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

// The warpgroup kernel. Columns of the product are rows (phase, channel), its rows are positions.
constexpr int element_bytes(const GemmConfig& c) { return element_bytes(c.math); }
/// Heads, and in fp32 remainders, of weights.
constexpr int weight_parts(Math math) { return splits(math) ? 2 : 1; }
constexpr int weight_parts(const GemmConfig& c) { return weight_parts(c.math); }
/// The weights of one octet and step: all rows of eight words.
constexpr int row_step_bytes(const GemmConfig& c) { return c.rows * 8 * 4; }
constexpr int row_slab_bytes(const GemmConfig& c) {
  return substeps_of(c) * c.steps_per_slab * weight_parts(c) * row_step_bytes(c);
}
// Packed weights of a row block are [octet / group][step][octet of the group], and slabs are cut from them: a copy of
// many bytes takes little more time than one of few. Places are counted in the weights of one octet and step.
/// Octets of a step that lie side by side in shared memory, and from which octet to the next group of them.
constexpr int slab_octets(const GemmConfig& c) {
  return c.resident_steps ? c.octet_group : min_of(c.octet_group, substeps_of(c));
}
constexpr int slab_place(const GemmConfig& c, int octet, int step) {
  const int side = slab_octets(c), steps = c.resident_steps ? c.resident_steps : c.steps_per_slab;
  return (octet / side * steps + step) * side + octet % side;
}
/// Copies that streamed weights of a chunk take for each of its steps.
constexpr double copies_per_step(const GemmConfig& c) {
  if (c.resident_steps) return 0;
  const int octets = substeps_of(c);
  return octets < c.octet_group ? 1.0 : double(octets / c.octet_group) / c.steps_per_slab;
}
/// Where the weights of a chunk begin that are there to stay.
constexpr int resident_place(const GemmConfig& c, int chunk) {
  const int octet = chunk * substeps_of(c);
  return octet / c.octet_group * c.octet_group * c.resident_steps + octet % c.octet_group;
}

/// fp32: sums so short that the tensor core's truncation would be most of their error. Others are added in larger
/// parts, since each addition rounds.
constexpr bool short_sums(const GemmConfig& c) {
  const Int3 phases{min_of(c.stride.d, c.kernel.d), min_of(c.stride.h, c.kernel.h),
                    min_of(input_stride(c), c.kernel.w)};
  return octets_of(c) * volume(c.kernel) < 12 * volume(phases);
}
/// Steps whose operands are read together: about four octets, and no step left alone where three divide a slab.
/// (fp32 splits operands, and takes one.)
constexpr int batch_steps_of(const GemmConfig& c) {
  if (c.math == Math::fp32) return 1;
  if (substeps_of(c) == 1 && c.steps_per_slab % 4 != 0 && c.steps_per_slab % 3 == 0) return 3;
  return max_of(1, min_of(4 / substeps_of(c), c.steps_per_slab));
}
/// Of the block, where weights are resident; of a team otherwise.
constexpr int resident_bytes(const GemmConfig& c) {
  return octets_of(c) * c.resident_steps * weight_parts(c) * row_step_bytes(c);
}
constexpr int weight_ring_bytes(const GemmConfig& c) { return c.resident_steps ? 0 : c.stages * row_slab_bytes(c); }

/// Columns of one box, and how far the next box along the width is away.
constexpr int box_positions(const GemmConfig& c) { return c.images * volume(c.box); }
constexpr int box_advance(const GemmConfig& c) {
  // Boxes start where copies of x may start.
  const int step = max_of(max_of(4, c.x_vector) / c.x_phases, 1);
  return c.window > 1 ? (c.box.w - ceil_div(c.window - 1, c.stride.w)) / step * step : c.box.w;
}

// Its epilogue: rows are staged as they leave, one run for each line and row of positions of the box, at the
// alignment the run has in memory.
constexpr int box_rows(const GemmConfig& c) { return c.images * c.box.d * c.box.h; }
constexpr int store_vector(const GemmConfig& c) { return 16 / element_bytes(c); }
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
constexpr int run_entry_bytes = 16;
/// A staging buffer, and with the table of its runs.
constexpr int staging_bytes(const GemmConfig& c) {
  return c.y_rows ? round_up(stage_lines(c) * staged_line_stride(c) * element_bytes(c), 128) : 0;
}
constexpr int stage_bytes(const GemmConfig& c) {
  return c.y_rows ? round_up(staging_bytes(c) + stage_lines(c) * box_rows(c) * run_entry_bytes, 128) : 0;
}
constexpr int lines_of_block(const GemmConfig& c) { return c.rows / c.width_slots; }
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

// The panel kernel. Its products have 64 rows; of rows that the plan does not have they read what lies there, and
// nothing is stored. A panel is a chunk of x as wgmma reads it: slices of 16 bytes of channels, [slice][position].
constexpr int panel_rows = 64;
/// Warpgroups of a team that multiply.
constexpr int members_of(const GemmConfig& c) { return c.team_blocks * c.box_parts; }
/// fp32: sums of a few products that are formed while others are added.
constexpr int split_buffers(const GemmConfig& c) { return c.panel_columns / 2 * (c.position_tiles + 2) <= 128 ? 2 : 1; }
/// fp32: steps whose products the tensor core sums: two or three octets, fewer where there are few in all.
constexpr int split_steps(const GemmConfig& c) {
  if (substeps_of(c) > 1 || short_sums(c)) return 1;
  return c.steps_per_slab % 3 == 0 ? 3 : min_of(2, c.steps_per_slab);
}
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
/// Threads of a team that fill panels.
constexpr int panel_loaders(const GemmConfig& c) { return c.loaders * warpgroup_size; }
/// Behind them where x is scaled: the scale, and the largest numbers of its inputs, one for each warp that filled the
/// panel.
constexpr int panel_scale_place(const GemmConfig& c) { return weight_parts(c) * panel_part_bytes(c); }
constexpr int panel_largest_place(const GemmConfig& c) { return panel_scale_place(c) + 16; }
constexpr int panel_bytes(const GemmConfig& c) {
  return round_up(panel_scale_place(c) + (scales(c.math) ? 16 + 16 * c.loaders : 0), 128);
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
/// Products that share a row of positions.
constexpr int panels_per_row(const GemmConfig& c) {
  return c.panel_flat || c.product_rows > 1 ? 1 : c.box.w / c.panel_columns;
}
/// Rows of the x tile, and the row of it a row of the box is.
constexpr int x_row_of(const GemmConfig& c, int box_row) {
  const Int3 e = x_extent(c);
  const int h = box_row % c.box.h, slice = box_row / c.box.h;
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

// Its epilogue: a warp stages eight rows of the product at a time, one run for each line and each product, or for each
// row of positions that it covers; where products are flat, for all rows of positions.
constexpr int panel_runs(const GemmConfig& c) { return c.panel_flat ? panel_flat_rows(c) : 1; }
constexpr int panel_run_width(const GemmConfig& c) {
  return c.panel_flat || c.product_rows > 1 ? c.box.w : c.panel_columns;
}
constexpr int panel_pass_lines(const GemmConfig& c) { return max_of(8 / c.width_slots, 1); }
/// Rows that are whole lines: eight, or the 16 of a warp.
constexpr bool are_whole_lines(int width_slots) { return 8 % width_slots == 0 || width_slots == 16; }
/// Passes of a warp's 16 rows, and the lanes that have sums of a line.
constexpr int panel_passes(const GemmConfig& c) { return c.width_slots > 8 ? 1 : 2; }
constexpr int panel_line_lanes(const GemmConfig& c) { return min_of(4 * c.width_slots, warp_size); }
/// Flat products cover whole rows. Where rows of outputs are aligned, so are staged runs, which may begin before them.
constexpr int panel_flat_skew(const GemmConfig& c) {
  const int v = store_vector(c), first = c.first_position.w * c.stride.w - c.padding.w;
  return (first % v + v) % v;
}
/// Runs of a product; the last one has fewer rows perhaps.
constexpr int product_runs(const GemmConfig& c) { return ceil_div(c.product_rows, c.run_rows); }
// Where runs are several whole rows:
/// how many lines are one run,
constexpr int run_lines(const GemmConfig& c) { return c.run_rows > 1 ? c.line_phases : 1; }
constexpr int panel_pass_runs(const GemmConfig& c) { return panel_pass_lines(c) / run_lines(c); }
/// how many outputs before its row the first position begins,
constexpr int row_lead(const GemmConfig& c) { return c.padding.w - c.first_position.w * c.stride.w; }
/// and how many positions at the end of a box's row may be beyond it.
constexpr int most_beyond_row = 8;
constexpr bool joins_whole_rows(const GemmConfig& c, int out_width) {
  const int beyond = c.box.w * c.stride.w - row_lead(c) - out_width;
  const bool rows_follow = c.stride.h == c.line_phases && c.first_position.h * c.stride.h == c.padding.h;
  if (!rows_follow || c.width_phases < c.stride.w) return false;
  // Flat products have every row as it is.
  if (c.panel_flat) return row_lead(c) == 0 && beyond == 0 && !c.fills;
  return row_lead(c) >= 0 && beyond >= 0 && beyond <= most_beyond_row * c.stride.w;
}
/// Elements between two staged runs; of flat products, between two rows.
constexpr int panel_run_stride(const GemmConfig& c) {
  const int v = store_vector(c), width = panel_run_width(c) * c.stride.w * run_lines(c);
  if (c.panel_flat) return c.run_rows > 1 ? width : round_up(panel_flat_skew(c) + width, v);
  return round_up(width * c.run_rows + v - 1, v);
}
/// Runs that flat products have of a line.
constexpr int flat_runs_of_line(const GemmConfig& c) { return box_rows(c) / c.run_rows; }
/// Elements between two staged lines: so many words modulo 32 that lanes of different lines write to different banks.
constexpr int panel_line_stride(const GemmConfig& c) {
  const int words = ceil_div(panel_runs(c) * panel_run_stride(c) * element_bytes(c), 4);
  const int residue = element_bytes(c) == 2 && (c.stride.w == 1 || c.stride.w == 4) ? 4 * c.stride.w : 8;
  return pad_to_bank(words, residue) * 4 / element_bytes(c);
}
constexpr int panel_staging_bytes(const GemmConfig& c) {
  return round_up(panel_pass_runs(c) * panel_line_stride(c) * element_bytes(c), 16);
}
/// Channels last, how many channels are stored at once: those of 16 bytes, or fewer where they are not aligned for it.
constexpr int channel_vector(const GemmConfig& c) {
  int v = store_vector(c);
  while (v > 1 && (c.y_channels < v || c.channels_per_block % v != 0 || c.group_out % v != 0)) v /= 2;
  return v;
}
// A warpgroup stages so many positions of all rows at a time.
constexpr int staged_columns(const GemmConfig& c) { return min_of(64 / element_bytes(c), c.panel_columns); }
/// Elements between two positions: lanes write two words of four positions, or four of eight.
constexpr int staged_pitch(const GemmConfig& c) {
  return pad_to_bank(c.rows * element_bytes(c) / 4, 4) * 4 / element_bytes(c);
}
/// Of one warp: the staged rows and, where products are flat, tables of their rows and lines.
constexpr int panel_store_bytes(const GemmConfig& c) {
  // Products of 64 rows read more than the last weights where there are fewer, and those that cover a halo a little
  // more than the last panel.
  const int beyond = (panel_rows - c.rows) * 8 + (c.panel_flat || c.product_rows > 1 ? 128 : 0);
  const int read = max_of(beyond, c.depth_splits > 1 ? 16 : 0);  // the warpgroup agrees here on who is last
  if (c.channel_rows) {                                          // a quarter of what the warpgroup stages
    const int staged = 2 * staged_columns(c) * staged_pitch(c) * element_bytes(c) / 4;
    return max_of(round_up(staged, 16), read);
  }
  return max_of(
      panel_staging_bytes(c) + (c.panel_flat ? (flat_runs_of_line(c) + panel_pass_lines(c)) * run_entry_bytes : 0),
      read);
}
constexpr int panel_team_bytes(const GemmConfig& c) {
  return round_up(
      c.panel_stages * panel_bytes(c) + c.team_blocks * weight_ring_bytes(c) + 4 * members_of(c) * panel_store_bytes(c),
      128);
}
/// Sums of a warpgroup that multiplies, and those that all tiles of a depth leave for the last of them.
constexpr int member_sums(const GemmConfig& c) { return panel_rows * c.panel_columns * c.position_tiles; }
constexpr int partial_bytes(const GemmConfig& c) {
  return c.depth_splits > 1 ? c.depth_splits * members_of(c) * member_sums(c) * 4 : 0;
}
/// A team of the panel kernel has loading warpgroups of its own.
constexpr int multiplying_warpgroups(const GemmConfig& c) {
  return c.panel_columns ? members_of(c) * c.teams : c.teams;
}
constexpr int panel_team_barriers(const GemmConfig& c) { return 2 * (c.panel_stages + c.team_blocks * c.stages); }
constexpr int panel_shared_bytes(const GemmConfig& c) {
  return 128 + c.team_blocks * resident_bytes(c) + c.teams * panel_team_bytes(c) +
         (c.teams * panel_team_barriers(c) + 1 + (c.in_turns ? multiplying_warpgroups(c) : 0)) * 8;
}
/// Whether warpgroups of a block may multiply one at a time: those that share panels or weights must find room for all
/// of a tile in their slots.
constexpr bool allows_turns(const GemmConfig& c) {
  const bool panels_stay = members_of(c) == 1 || c.panel_stages >= chunks_of(c);
  return multiplying_warpgroups(c) > 1 && panels_stay && (c.box_parts == 1 || c.resident_steps > 0);
}

// Of both kernels.
constexpr int team_shared_bytes(const GemmConfig& c) {
  return c.panel_columns ? panel_shared_bytes(c) : warpgroup_shared_bytes(c);
}
constexpr int warpgroups_of(const GemmConfig& c) {
  return multiplying_warpgroups(c) + (c.panel_columns ? c.teams * c.loaders : 1);
}

// Registers: a block starts with the same number for all its threads; loading warpgroups give back what they do
// not need. Asking for more than there is would wait for ever.
constexpr int entry_registers(const GemmConfig& c) {
  return min_of(65536 / (c.blocks_per_sm * warpgroup_size * warpgroups_of(c)) / 8 * 8, 248);
}
constexpr int loading_registers(const GemmConfig& c) {
  if (c.turned) return 40;
  return c.panel_columns ? round_up(filling_registers(c) + 40, 8) : 64;
}
constexpr int multiplying_registers(const GemmConfig& c) {
  const int all = warpgroups_of(c), multiplying = multiplying_warpgroups(c);
  const int left = entry_registers(c) * all - (all - multiplying) * loading_registers(c);
  return min_of(left / multiplying / 8 * 8, 240);
}

}  // namespace tconv::device
