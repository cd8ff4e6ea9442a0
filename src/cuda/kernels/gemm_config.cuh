// The configuration of the implicit-GEMM kernels, and who works in a block of them. The sizes that follow from it are
// in sizes/.
//
// Host and device compile these files: the planner fills a GemmConfig and asks how much shared memory it
// takes, the generated source carries the same values, and the kernels take them as one template
// argument. Batch and lengths are not in it. (NVRTC compiles with --device-as-default-execution-space.)
#pragma once

#include "integers.cuh"
#include "math.cuh"

namespace tconv::device {

/// Outputs along the width as channels. A layer whose stride along the width is large, or that has few channels, is
/// seen as one of stride 1: a position has `count` neighbouring outputs of each channel, and these are the channels
/// that the configuration and its rows have (cuda/layer_view.hpp).
struct ChannelPhases {
  int count = 1;  // 1: channels are those of the layer
  int lead = 0;   // outputs of the first position that are before the row
  // Of the weight: the tap of a position's first output at shift 0, which may be below zero, and how many there are.
  int first_tap = 0, taps = 0;

  constexpr bool operator==(const ChannelPhases&) const = default;
};

struct GemmConfig {
  // The layer.
  Math math;
  int groups, group_in, group_out;
  Int3 kernel, stride, padding, dilation;
  Int3 first_position;  // the smallest q that has an output
  Int3 reach;           // the largest shift
  ChannelPhases channel_phases;

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
  int line_phases;        // phases along the height whose lines are neighbours: all that have taps, or 1
  int run_phases;         // phases along the height whose outputs may be rows of one run: all, or 1
  bool row_pairs;         // rows of neighbouring phases are eight apart, so that a thread has both (place_of_row)
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
  bool whole_rows;   // runs are whole rows of outputs, of all phases along the height and several rows of positions
  int run_rows;      // so many: of a product, or of several that are one row each; of flat ones, of a slice of the box
  int team_blocks;   // channel blocks of a team: each has a warpgroup that multiplies, and they share panels
  int box_parts;     // parts of a box that warpgroups of a team multiply by the same weights, 1 or 2
  int loaders;       // warpgroups of a team that fill panels, 1 or 2
  int fill_buffers;  // chunks of x a loading thread holds in registers, 1 or 2
  bool panel_flat;   // products run over the positions of the x tile, halo included, and not over rows of the box
  bool turned;       // x was turned into panels before (turn_x.cuh), and is copied
  bool turned_once;  // and not for each box, halo and all, but once for all boxes, of which a panel is cut
  int panel_steps;   // then, steps whose shifts along depth and height are the same, if a panel is for them alone; or 0
  Int3 shared_halo;  // of turned x: zeros behind a row, which are those before the next one; so of slices and images
  bool rows_beside;  // of turned x: a row of each image of the box, then the next row of each, not image after image
  bool mapped;       // x is copied as it lies, by a tensor map; its positions are the major dimension of operands
  bool in_turns;     // warpgroups of a block multiply one at a time
  bool fills;        // types without taps are filled with the bias, and a team has all types of a box in turn
  int depth_splits;  // tiles that share the chunks of one sum; 1: none. Of turned x, the last one of them adds all
  bool clustered;    // they are two, blocks of a cluster, and each adds and stores half of the rows

  // The march kernel (march_gemm.cuh), where this is not 0: slots of sums, the output slices that a slice of x reaches.
  // `reach` has no depth then, `box.d` is how many output slices a tile has, `box_parts` how many warpgroups multiply,
  // and products have 64 positions by `rows` columns.
  int march;

  constexpr bool operator==(const GemmConfig&) const = default;
};

constexpr int channels_per_word(const GemmConfig& c) { return channels_per_word(c.math); }
constexpr int word_bytes(const GemmConfig& c) { return word_bytes(c.math); }
constexpr int element_bytes(const GemmConfig& c) { return element_bytes(c.math); }
constexpr int weight_parts(const GemmConfig& c) { return weight_parts(c.math); }

constexpr int chunks_of(const GemmConfig& c) { return ceil_div(c.group_in, c.chunk_words * channels_per_word(c)); }
/// The chunks of one of the tiles that share them: from this one up to the first one of the next.
constexpr int first_chunk(const GemmConfig& c, int split) { return split * chunks_of(c) / c.depth_splits; }

/// Where rows are paired, the place of each among the 16 of a warp: a thread's two rows, eight places apart, are two
/// neighbouring phases of a line, and its outputs of a position one word. Of 16-bit outputs alone.
constexpr int place_of_row(int row) { return row / 16 * 16 + row % 2 * 8 + row % 16 / 2; }
constexpr int row_at_place(int place) { return place / 16 * 16 + place % 8 * 2 + place % 16 / 8; }

/// The channel of the layer that a channel of the configuration is an output of, and which one of a position.
constexpr int layer_channel(const GemmConfig& c, int channel) {
  return c.channel_phases.count > 1 ? channel / c.channel_phases.count : channel;
}
constexpr int phase_of_channel(const GemmConfig& c, int channel) {
  return c.channel_phases.count > 1 ? channel % c.channel_phases.count : 0;
}

/// Sets of row blocks that tiles are made of: a block, or those that a team works on together.
constexpr int block_sets_of(const GemmConfig& c) { return c.types * (c.channel_blocks / c.team_blocks) * c.groups; }

// Who works in a block. In the general kernel all threads load and multiply.
constexpr int threads_of(const GemmConfig& c) { return c.warps_m * c.warps_n * warp_size; }

// In the warpgroup kernel one warpgroup loads, one for each team multiplies.
/// Threads that load x for a team. Where weights are streamed, the other half of the warpgroup sees to them.
constexpr int x_loaders_of(const GemmConfig& c) {
  return c.teams > 2 ? warp_size : c.teams == 1 && c.resident_steps > 0 ? warpgroup_size : warpgroup_size / 2;
}
/// Threads that load x tiles together.
constexpr int loading_threads(const GemmConfig& c) { return c.teams ? x_loaders_of(c) : threads_of(c); }

// In the panel kernel a team has loading warpgroups of its own.
/// Threads of a team that fill panels.
constexpr int panel_loaders(const GemmConfig& c) { return c.loaders * warpgroup_size; }
/// Whether panels are copies, which a thread begins.
constexpr bool copies_x(const GemmConfig& c) { return c.turned || c.mapped; }
/// Whether a panel is of one shift along depth and height: no halo there, and a panel for each of them.
constexpr bool panels_by_shift(const GemmConfig& c) { return c.panel_steps > 0; }
/// Warpgroups of a team that multiply.
constexpr int members_of(const GemmConfig& c) { return c.team_blocks * c.box_parts; }
/// Warpgroups of a block that multiply, and all of them, one that stores among them in the march kernel.
constexpr int multiplying_warpgroups(const GemmConfig& c) {
  return c.panel_columns ? members_of(c) * c.teams : c.teams;
}
constexpr int warpgroups_of(const GemmConfig& c) {
  return multiplying_warpgroups(c) + (c.panel_columns ? c.teams * c.loaders : 1) + (c.march ? 1 : 0);
}

}  // namespace tconv::device
