# ruff: noqa: E501
"""kb79: 1D 32→64, kernel 3, stride 2, padding 1, dilation 2, tf32.

Written by `tconv export` (tconv 0.1.0). It needs PyTorch, a CUDA toolkit and a GPU of compute capability 8.0 or
later, and nothing of tconv. The kernels are specialised to the layer and serve every batch and length; the first
call compiles them. Gradients are PyTorch's own, from convolution_backward.
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.utils.cpp_extension import load_inline

# What the kernels are made for.
LAYER = {
    "in_channels": 32,
    "out_channels": 64,
    "kernel_size": (3,),
    "stride": (2,),
    "padding": (1,),
    "output_padding": (0,),
    "groups": 1,
    "dilation": (2,),
}
DTYPE = torch.float32
WEIGHT_SIZES = (LAYER["in_channels"], LAYER["out_channels"] // LAYER["groups"], *LAYER["kernel_size"])

CPP_SOURCE = "at::Tensor forward(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&);"

CUDA_SOURCE = r"""
// ---- integers.cuh
// Integers that host and device count with: one per dimension, rounding, and how many threads work as one.

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

/// The smallest number at or above `value` that is `residue` modulo the number of banks: strides with residue 8 let a
/// warp read four rows of eight words from 32 different banks. Of 64-bit words there are 16.
constexpr int pad_to_bank(int value, int residue, int banks = 32) {
  return value + ((residue - value) % banks + banks) % banks;
}

constexpr int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }

constexpr int warp_size = 32;
constexpr int warpgroup_size = 128;

}  // namespace tconv::device
// ---- base.cuh
// What every device file needs: fixed-width integers, small helpers, the vocabulary of positions.
//
// The device sources include no header but each other: they are compiled at run time, on machines
// that may have no CUDA toolkit.


namespace tconv::device {

using i64 = long long;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

__device__ inline int lane_index() { return threadIdx.x % warp_size; }
__device__ inline int warp_index() { return threadIdx.x / warp_size; }

/// Calls `visit` with the numbers below `Count`, each a constant: `visit(at)` has it as `at.value`.
template <int Value>
struct Constant {
  static constexpr int value = Value;
};
template <int Count, int From = 0, class Visit>
__device__ void unrolled(const Visit& visit) {
  if constexpr (From < Count) {
    visit(Constant<From>{});
    unrolled<Count, From + 1>(visit);
  }
}

}  // namespace tconv::device
// ---- math.cuh
// The numbers that tensor cores multiply in place of a layer's elements. Host and device compile this file.

namespace tconv::device {

/// `fp32` splits numbers into two TF32 numbers, `halves` scales them and splits them into two fp16 numbers: three
/// products of either kind are as good as one of fp32, and those of fp16 take half the time (mma/split.cuh). `half`
/// scales numbers and rounds them to one fp16 number, which has as many bits as one of TF32. `f64` are doubles.
enum class Math { fp32, tf32, f16, bf16, halves, half, f64 };
constexpr bool splits(Math math) { return math == Math::fp32 || math == Math::halves; }
constexpr bool scales(Math math) { return math == Math::halves || math == Math::half; }
/// Of operands: two 16-bit numbers are a word, and a double is one.
constexpr int word_bytes(Math math) { return math == Math::f64 ? 8 : 4; }
constexpr int channels_per_word(Math math) {
  return math == Math::fp32 || math == Math::tf32 || math == Math::f64 ? 1 : 2;
}
/// Of an element in memory.
constexpr int element_bytes(Math math) {
  return math == Math::f16 || math == Math::bf16 ? 2 : math == Math::f64 ? 8 : 4;
}
/// Heads, and in fp32 remainders, of weights.
constexpr int weight_parts(Math math) { return splits(math) ? 2 : 1; }

}  // namespace tconv::device
// ---- gemm_config.cuh
// The configuration of the implicit-GEMM kernels, and who works in a block of them. The sizes that follow from it are
// in sizes/.
//
// Host and device compile these files: the planner fills a GemmConfig and asks how much shared memory it
// takes, the generated source carries the same values, and the kernels take them as one template
// argument. Batch and lengths are not in it. (NVRTC compiles with --device-as-default-execution-space.)


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
// ---- element.cuh
// Element types as they lie in memory, and their conversion to and from the types they are summed in.


namespace tconv::device {

/// 16-bit floats are carried as bits: conversion is one instruction, and no header is needed.
struct F16 {
  u16 bits;
};
struct BF16 {
  u16 bits;
};

template <Math math>
struct ElementFor {
  using Type = float;
};
template <>
struct ElementFor<Math::f16> {
  using Type = F16;
};
template <>
struct ElementFor<Math::bf16> {
  using Type = BF16;
};
template <>
struct ElementFor<Math::f64> {
  using Type = double;
};
template <GemmConfig C>
using ElementOf = typename ElementFor<C.math>::Type;

/// A word of operands.
template <Math math>
struct OperandWordFor {
  using Type = u32;
};
template <>
struct OperandWordFor<Math::f64> {
  using Type = double;
};
template <GemmConfig C>
using OperandWord = typename OperandWordFor<C.math>::Type;

template <class Element>
struct AccumulatorOf {
  using Type = float;
};
template <>
struct AccumulatorOf<double> {
  using Type = double;
};
template <Math math>
using SumFor = typename AccumulatorOf<typename ElementFor<math>::Type>::Type;

__device__ inline double load_as_accumulator(double value) { return value; }
__device__ inline float load_as_accumulator(float value) { return value; }
__device__ inline float load_as_accumulator(F16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
__device__ inline float load_as_accumulator(BF16 value) { return __uint_as_float(u32(value.bits) << 16); }

__device__ inline void convert(double& to, double from) { to = from; }
__device__ inline void convert(float& to, float from) { to = from; }
__device__ inline void convert(F16& to, float from) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(from)); }
__device__ inline void convert(BF16& to, float from) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(from)); }

template <class Element, class Accumulator>
__device__ inline Element to_element(Accumulator value) {
  Element result;
  convert(result, value);
  return result;
}

}  // namespace tconv::device
// ---- epilogue/vector_store.cuh
// Stores of several outputs at once: pairs and fours; and of staged runs, vectors of 16 bytes that are aligned in
// memory and in the staging buffer, of which the first and the last of a run may reach beyond it.


namespace tconv::device {

__device__ inline void store_pair(double* at, double a, double b) {
  *reinterpret_cast<double2*>(at) = make_double2(a, b);
}
__device__ inline void store_pair(float* at, float a, float b) { *reinterpret_cast<float2*>(at) = make_float2(a, b); }
/// Two numbers of 16 bits as a word.
template <class Half>
__device__ u32 pair_of(float low, float high) {
  return to_element<Half>(low).bits | u32(to_element<Half>(high).bits) << 16;
}
template <class Half>
__device__ void store_pair(Half* at, float a, float b) {
  *reinterpret_cast<u32*>(at) = pair_of<Half>(a, b);
}
template <class Half>
__device__ void store_quad(Half* at, float a, float b, float c, float d) {
  *reinterpret_cast<uint2*>(at) = make_uint2(pair_of<Half>(a, b), pair_of<Half>(c, d));
}

/// Outputs between `at` and the vector boundary before it.
template <int Vector, class Element>
__device__ int skew_of(const Element* at) {
  return int(reinterpret_cast<u64>(at) / sizeof(Element) % Vector);
}

/// Stores what of `value` lies in outputs [first, end) of the run at `at`; the vector begins with output `c`.
template <int Vector, class Element>
__device__ void store_vector(Element* at, int first, int end, int c, const uint4& value) {
  if (c >= first && c + Vector <= end) {
    *reinterpret_cast<uint4*>(at + c) = value;
  } else if (c + Vector > first && c < end) {
    const Element* const elements = reinterpret_cast<const Element*>(&value);
#pragma unroll
    for (int i = 0; i < Vector; ++i)
      if (c + i >= first && c + i < end) at[c + i] = elements[i];
  }
}

}  // namespace tconv::device
// ---- sizes/tile.cuh
// Sizes that all implicit-GEMM kernels share: the box of positions that is a tile, the x it reads, and its outputs.


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
// ---- sizes/weights.cuh
// Packed weights and the slabs that are cut from them: fragments for the general kernel, rows for those of warpgroups.


namespace tconv::device {

/// Octets of channel words in all, some of zeros where groups of them are packed together; a layer of at most four
/// words has one, with two steps in it.
constexpr int octets_of(const GemmConfig& c) {
  return round_up(ceil_div(c.group_in, 8 * channels_per_word(c)), c.octet_group);
}
constexpr int substeps_of(const GemmConfig& c) { return c.chunk_words >= 8 ? c.chunk_words / 8 : 1; }

// Fragments. A slab is `steps_per_slab` steps of each octet of channel words.
constexpr int row_tiles_of(const GemmConfig& c) { return c.warps_m * c.tiles_m; }
/// The A fragments of one octet and step.
constexpr int step_words(const GemmConfig& c) { return row_tiles_of(c) * warp_size * 4; }
constexpr int slab_words(const GemmConfig& c) { return substeps_of(c) * c.steps_per_slab * step_words(c); }
constexpr int weight_ring_words(const GemmConfig& c) {
  return c.resident_steps ? octets_of(c) * c.resident_steps * step_words(c) : c.stages * slab_words(c);
}

// Rows.
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

/// Of the block, where weights are resident; of a team otherwise.
constexpr int resident_bytes(const GemmConfig& c) {
  return octets_of(c) * c.resident_steps * weight_parts(c) * row_step_bytes(c);
}
constexpr int weight_ring_bytes(const GemmConfig& c) { return c.resident_steps ? 0 : c.stages * row_slab_bytes(c); }

/// fp32: sums so short that the tensor core's truncation would be most of their error. Others are added in larger
/// parts, since each addition rounds.
constexpr bool short_sums(const GemmConfig& c) {
  const Int3 phases{min_of(c.stride.d, c.kernel.d), min_of(c.stride.h, c.kernel.h),
                    min_of(input_stride(c), c.kernel.w)};
  return octets_of(c) * volume(c.kernel) < 12 * volume(phases);
}

}  // namespace tconv::device
// ---- sizes/general.cuh
// Sizes of the general kernel (implicit_gemm.cuh): its epilogue and its shared memory.


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
// ---- divisor.cuh
// Division by numbers that a launch knows and a kernel does not: one multiplication, where the machine's own takes some
// twenty instructions that wait for each other.


namespace tconv::device {

/// Divides numbers of 0 to 2^31 - 1 by `by`, which is at least 1.
struct Divisor {
  int by = 1;
  // 2^(31 + shift) / by, rounded up, with 2^shift at least `by`: what rounding adds is below 2^shift / 2^(31 + shift)
  // a unit, and below 1 for all numbers together.
  unsigned factor = 1u << 31, shift = 0;

  constexpr Divisor() = default;
  constexpr Divisor(long long divisor) : by(int(divisor)) {
    while (1ll << shift < divisor) ++shift;
    factor = unsigned(((1ull << (31 + shift)) + by - 1) / by);
  }
  constexpr int quotient(int number) const {
    return int(unsigned((unsigned long long)(unsigned(number) * 2) * factor >> 32) >> shift);
  }
  constexpr int remainder(int number) const { return number - quotient(number) * by; }
  /// The remainder of `rest`, which becomes the quotient: takes the fastest index off a number of several.
  constexpr int take(int& rest) const {
    const int whole = rest;
    rest = quotient(whole);
    return whole - rest * by;
  }
};

struct Divisor3 {
  Divisor d, h, w;
  constexpr Divisor3() = default;
  constexpr Divisor3(const Int3& by) : d(by.d), h(by.h), w(by.w) {}
};
constexpr int volume(const Divisor3& v) { return v.d.by * v.h.by * v.w.by; }

}  // namespace tconv::device
// ---- launch_params.cuh
// What a launch tells a kernel: pointers, strides and sizes. Host and device compile this file; the host
// fills a struct and hands its bytes to the driver.


namespace tconv::device {

/// Strides in elements. Inside one image and channel they are below 2^31; the planner checks.
struct ImageStrides {
  long long n, c;
  int d, h, w;
};

struct ForwardParams {
  const void* x;
  const unsigned* weight;  // packed, see pack.cuh
  const float* scales;     // of the weights of each output channel where they were scaled: what undoes that
  const void* bias;        // may be null
  void* y;
  ImageStrides xs, ys;
  Int3 in, out;
  int batch;
  Divisor3 boxes;      // boxes of positions along each dimension
  int tiles;           // row blocks x boxes x batch, and the parts of their depth
  float* partials;     // where tiles share a sum: [sum][part][warpgroup], and
  unsigned* arrivals;  // how many of them are there, for each sum and warpgroup: zeros
};

/// What the driver makes of a description: the copy engine reads it.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};
/// Of x as a tensor map has it: positions of an image, which follow one another, channels of a group, groups, and
/// images; and what a copy brings of the first two. Strides are bytes.
struct MapDescription {
  const void* x;
  unsigned long long sizes[4], strides[3];  // of all dimensions, and of those behind the first
  unsigned copied[2];
  bool bf16;
};
/// Of kernels that copy x by a map.
struct MappedParams : ForwardParams {
  TensorMap x_map;
};

/// What a load of x brings to the kernel that turns it.
enum class TurnLoad {
  element,  // a channel of an input
  pair,     // a channel of two neighbouring inputs, which are inside of x or outside together
  vector,   // all channels of a slice of an input
};

/// How x is turned, see turn_x.cuh.
struct TurnParams {
  const void* x;
  void* turned;
  ImageStrides xs;
  Int3 in;
  int batch;
  Divisor3 boxes;                   // of a call
  Int3 start, advance;              // where the x tile of the first box begins, and from box to box
  Divisor row_inputs, rows, depth;  // of an x tile: inputs of a row, rows of a layer, layers
  Divisor tile_inputs;              // of an x tile, which may have zeros behind its images
  int images;                       // of an x tile
  Divisor beside;                   // of them, those whose rows lie side by side
  int unit;                         // neighbouring inputs that a thread takes together, 1 or 2
  Divisor tile_units;
  Divisor x_phases;  // inputs of a position along the width
  int phase_stride;  // from one to the next in a slice
  int group_in;
  Divisor chunks, all_chunks;      // of a group, and of all
  int slices;                      // of a chunk
  int slice_stride, panel_stride;  // in slices of an input
  bool scaled;
  int scale_place;           // of a panel's scale, where x is scaled; in slices as well
  bool little;               // so few inputs that the kernel may begin early
  int threads;               // of a block
  int item_slices;           // slices of a position that a thread takes at a time: one, or `turn_depth`
  Divisor parts, all_parts;  // of a chunk, so taken; and of all
  long long inputs;          // of all x tiles
  unsigned* arrivals;        // to be zeros
  int arrival_count;
};
constexpr int turn_depth = 4;
/// Threads of a block at most, by the slices that each takes at a time; and where they do not share a panel.
constexpr int most_turn_threads(int item_slices) { return item_slices == 1 ? 1024 : 512; }
constexpr int turn_threads = 256;

struct PackParams {
  const void* weight;
  unsigned* packed;
  const float* scales;  // see ForwardParams
  long long stride_in, stride_out, stride_d, stride_h, stride_w;
  long long words;
};

/// Of the kernel that finds them, see weight_scales.cuh.
struct ScaleParams {
  const float* weight;
  float* scales;
  long long stride_in, stride_out, stride_d, stride_h, stride_w;
  int groups, group_in, group_out;
  Int3 kernel;
};

struct Strides5 {
  long long n, c, d, h, w;
};

struct GenericParams {
  const void* x;
  const void* weight;
  const void* bias;  // may be null
  void* y;
  Strides5 xs, ws, ys;  // of the weight: n = in, c = out
  long long bias_stride;
  long long batch;
  long long in_d, in_h, in_w, out_d, out_h, out_w;
};

/// Of the direct kernels. Work is counted in rows: (image, group, block of channels, row of outputs along the
/// depth, block of rows along the height), and tiles of positions along the width.
struct DirectParams {
  const void* x;
  const void* weight;
  const void* bias;  // may be null
  void* y;
  ImageStrides xs, ys;
  Strides5 ws;  // n = in, c = out
  Int3 in, out;
  int row_blocks;      // along the height
  int tiles;           // along the width
  int first_position;  // of tile 0
  int tile_positions;  // from tile to tile
  int lane_bits;       // 2^lane_bits lanes of a warp along the width, the others on further rows
  long long rows;
  long long items;  // what warps, or threads where lanes run over channels, take turns at
};

}  // namespace tconv::device
// ---- tile.cuh
// Tiles of work, decoded from their index.


namespace tconv::device {

/// One tile of work: a row block over one box of positions of one image, or of a few.
struct Tile {
  int type, channel_block, group;  // the row block, or the first of those that a team works on
  Int3 origin;                     // first position q of the box
  int box;                         // which box of the call
  int box_w;                       // and along the width
  int n;                           // the (first) image
  int sum, split;                  // which sum of the call, and which part of its depth

  /// Row blocks run fastest: they share the box. For teams they begin with another one in every round of the grid:
  /// types differ in their steps, and where the grid is a multiple of their number, the same teams would always
  /// have the longest, unless a team has all types of a box in turn. (The general kernel works out tiles too often for
  /// the division.)
  template <GemmConfig C>
  __device__ static Tile decode(const ForwardParams& p, int index) {
    constexpr int count = block_sets_of(C);
    const int split = index % C.depth_splits;
    index /= C.depth_splits;
    const int box = index / count;
    int block = index % count;
    if constexpr (C.teams > 0 && C.types > 1 && !C.fills)
      block = (block + box / max(int(gridDim.x) * C.teams / count, 1)) % count;
    Tile t = decode<C>(p, block, box);
    t.sum = index, t.split = split;
    return t;
  }

  template <GemmConfig C>
  __device__ static Tile decode(const ForwardParams& p, int block, int box) {
    Tile t;
    t.sum = t.split = 0;
    t.type = block % C.types, block /= C.types;
    constexpr int sets = C.channel_blocks / C.team_blocks;
    t.channel_block = block % sets * C.team_blocks, t.group = block / sets;
    t.box = box;
    t.box_w = p.boxes.w.take(box);
    t.origin.w = C.first_position.w + t.box_w * box_advance(C);
    t.origin.h = C.first_position.h + p.boxes.h.take(box) * C.box.h;
    t.origin.d = C.first_position.d + p.boxes.d.take(box) * C.box.d;
    t.n = box * C.images;
    return t;
  }
};

}  // namespace tconv::device
// ---- epilogue/staged_store.cuh
// The epilogue: sums leave the registers through shared memory, so that memory sees whole lines.
//
// A row of the product is a phase along the width of a line; a line is one (channel, phase along depth,
// phase along height). Staging interleaves the phases of a line, after which each row of positions of
// the box is a contiguous run of output. Slots of phases without taps are zero from the start and never
// written. Rows come in stage groups, runs of row tiles that hold complete lines; each pass stages one
// group per warp row.


namespace tconv::device {

template <GemmConfig C>
struct StagedStore {
  using Element = ElementOf<C>;
  using Sum = SumFor<C.math>;
  static constexpr int threads = threads_of(C);
  static constexpr int warps = C.warps_m * C.warps_n;
  static constexpr int box_rows = C.box.d * C.box.h;
  static constexpr int phases = C.width_phases;
  static constexpr int group_tiles = C.stage_group_tiles;
  static constexpr int group_lines = C.stage_group_lines;
  // Either each warp row stages groups of its own, or one group spans all warp rows.
  static constexpr bool spanning = spans_warps(C);
  static constexpr int passes = store_passes(C);
  static constexpr int pass_tiles = spanning ? C.tiles_m : group_tiles;
  static constexpr int pass_lines = device::pass_lines(C);
  static constexpr int lines = block_lines(C);
  static constexpr int line_stride = device::line_stride(C);
  static constexpr int run = C.box.w * C.stride.w;  // outputs of one row of positions

  static_assert(spanning || C.tiles_m % group_tiles == 0, "stage groups must not straddle warps");

  /// What the stores of a tile need to know of a line, worked out while its products are formed.
  struct Line {
    i64 offset;  // of its first output in the tensor, without the position
    Sum bias;
    int phase_d, phase_h;
    bool exists;
  };
  static_assert(sizeof(Line) == line_bytes(C));

  /// Shared memory of the epilogue. Lines are written for the next tile while others store this one.
  struct Memory {
    Sum* staging;
    Line* table[2];
  };
  __device__ static Memory memory(void* at) {
    Sum* staging = static_cast<Sum*>(at);
    Line* table = reinterpret_cast<Line*>(staging + staging_words(C));
    return {staging, {table, table + lines}};
  }

  __device__ static void clear(const Memory& m) {
    for (int i = int(threadIdx.x); i < staging_words(C); i += threads) m.staging[i] = 0;
  }

  template <class Tables>
  __device__ static void describe_lines(const ForwardParams& p, const Tile& tile, Line* table, const Tables& tables) {
    for (int i = int(threadIdx.x); i < lines; i += threads) {
      const u32 entry = tables.line(tile.type, i);
      const int local = int(entry & 0xffff) + tile.channel_block * C.channels_per_block;
      const int channel = tile.group * C.group_out + local;
      Line& line = table[i];
      line.exists = entry != 0xffffffff && local < C.group_out;
      line.phase_d = int(entry >> 16 & 0xff), line.phase_h = int(entry >> 24);
      line.offset = tile.n * p.ys.n + channel * p.ys.c;
      line.bias = p.bias && entry != 0xffffffff && local < C.group_out
                      ? load_as_accumulator(static_cast<const Element*>(p.bias)[channel])
                      : Sum(0);
    }
  }

  __device__ static void store(const ForwardParams& p, const Tile& tile, const Memory& m, const Line* table,
                               const Sum (&sum)[C.tiles_m][C.tiles_n][4]) {
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
      __syncthreads();  // the last pass has been read
      // Registers are named at compile time: one copy of the staging for each pass, one of the stores.
#pragma unroll
      for (int i = 0; i < passes; ++i)
        if (pass == i) stage(m.staging, sum, i);
      __syncthreads();
      if constexpr (C.y_rows)
        store_rows(p, tile, m.staging, table, pass);
      else
        store_elements(p, tile, m.staging, table, pass);
    }
  }

 private:
  __device__ static void stage(Sum* staging, const Sum (&sum)[C.tiles_m][C.tiles_n][4], int pass) {
    const int lane = lane_index(), warp_m = warp_index() / C.warps_n, warp_n = warp_index() % C.warps_n;
#pragma unroll
    for (int i = 0; i < pass_tiles; ++i) {
      const int m = pass * pass_tiles + i;
      // The tile's place in its stage group, and the group's first line in the staging buffer.
      const int place = spanning ? warp_m * C.tiles_m + i : i;
      const int first_line = spanning ? 0 : warp_m * group_lines;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = lane / 4 + half * 8;
        const int line = C.phase_major ? row : (place * 16 + row) / phases;
        const int phase = C.phase_major ? place : (place * 16 + row) % phases;
        if (line >= group_lines || phase >= phases) continue;
        Sum* target = staging + (first_line + line) * line_stride + width_phase(phase);
#pragma unroll
        for (int n = 0; n < C.tiles_n; ++n) {
          const int column = (warp_n * C.tiles_n + n) * 8 + lane % 4 * 2;
          const Sum* value = sum[m][n] + half * 2;
          if constexpr (C.stride.w == 1 && C.y_rows) {
            store_pair(target + column, value[0], value[1]);
          } else {
            target[column * C.stride.w] = value[0];
            target[(column + 1) * C.stride.w] = value[1];
          }
        }
      }
    }
  }

  /// The width phase that is the `index`th with taps.
  __device__ static int width_phase(int index) {
    if constexpr (phases == C.stride.w) return index;
    int phase = 0;
#pragma unroll
    for (int i = 0; i < phases; ++i)
      if (index == i) phase = phase_with_taps(C, i);
    return phase;
  }

  __device__ static int staged_row(int row) { return row * run; }

  /// The row of the block's line table that a line of the pass has.
  __device__ static int table_row(int pass, int line) {
    if (spanning) return line;
    return (line / group_lines * passes + pass) * group_lines + line % group_lines;
  }

  /// Eight lanes write a run, 16 bytes each and aligned with memory: a line of 128 bytes at a time, four runs
  /// side by side. The ends of a run go element by element.
  __device__ static void store_rows(const ForwardParams& p, const Tile& tile, const Sum* staging, const Line* table,
                                    int pass) {
    constexpr int vector = 16 / sizeof(Element);
    constexpr int lanes = 8, runs = pass_lines * box_rows;
    const int ow0 = tile.origin.w * C.stride.w - C.padding.w;
    const int first = max(0, -ow0), end = min(run, p.out.w - ow0);
#pragma unroll 1
    for (int item = int(threadIdx.x) / lanes; item < runs; item += threads / lanes) {
      const int line_index = item / box_rows, row = item % box_rows;
      const Line& line = table[table_row(pass, line_index)];
      const int od = (tile.origin.d + row / C.box.h) * C.stride.d + line.phase_d - C.padding.d;
      const int oh = (tile.origin.h + row % C.box.h) * C.stride.h + line.phase_h - C.padding.h;
      if (!line.exists || unsigned(od) >= unsigned(p.out.d) || unsigned(oh) >= unsigned(p.out.h)) continue;
      const Sum bias = line.bias;
      Element* const target = static_cast<Element*>(p.y) + line.offset + (od * p.ys.d + oh * p.ys.h + ow0);
      // Vectors start `skew` elements before the run. In the staging they start `shift` floats after a
      // multiple of four: two aligned reads hold them. What is read in front of a line is not stored; in
      // front of the staging lie the x tiles.
      const int skew = int(reinterpret_cast<u64>(target + first) / sizeof(Element) % (vector * lanes));
      const int begin = first - skew, staged = staged_row(row);
      const int shift = (staged + begin) & 3;
      const Sum* const from = staging + line_index * line_stride;
#pragma unroll 2
      for (int c = begin + lane_index() % lanes * vector; c < end; c += lanes * vector) {
        if (c + vector <= first) continue;
        Element out[vector];
        if constexpr (sizeof(Sum) == 8) {
#pragma unroll
          for (int i = 0; i < vector; ++i) out[i] = from[staged + max(c + i, first)] + bias;
        } else {
          const float4* words = reinterpret_cast<const float4*>(from + (staged + c - shift));
          float4 low = words[0];
#pragma unroll
          for (int i = 0; i < vector / 4; ++i) {
            const float4 high = words[i + 1];
            const float4 v = shifted(low, high, shift);
            out[4 * i] = to_element<Element>(v.x + bias), out[4 * i + 1] = to_element<Element>(v.y + bias);
            out[4 * i + 2] = to_element<Element>(v.z + bias), out[4 * i + 3] = to_element<Element>(v.w + bias);
            low = high;
          }
        }
        if (c >= first && c + vector <= end) {
          store_whole(target + c, out);
        } else {
#pragma unroll
          for (int i = 0; i < vector; ++i)
            if (c + i >= first && c + i < end) target[c + i] = out[i];
        }
      }
    }
  }

  /// Four of the eight floats of `low` and `high`, from `shift` on.
  __device__ static float4 shifted(const float4& low, const float4& high, int shift) {
    const bool one = shift & 1, two = shift & 2;
    const float a = one ? low.y : low.x, b = one ? low.z : low.y, c = one ? low.w : low.z, d = one ? high.x : low.w,
                e = one ? high.y : high.x, f = one ? high.z : high.y;
    return make_float4(two ? c : a, two ? d : b, two ? e : c, two ? f : d);
  }

  __device__ static void store_whole(double* at, const double (&v)[2]) { store_pair(at, v[0], v[1]); }
  __device__ static void store_whole(float* at, const float (&v)[4]) {
    *reinterpret_cast<float4*>(at) = make_float4(v[0], v[1], v[2], v[3]);
  }
  template <class Half>
  __device__ static void store_whole(Half* at, const Half (&v)[8]) {
    *reinterpret_cast<uint4*>(at) = make_uint4(v[0].bits | u32(v[1].bits) << 16, v[2].bits | u32(v[3].bits) << 16,
                                               v[4].bits | u32(v[5].bits) << 16, v[6].bits | u32(v[7].bits) << 16);
  }

  /// Any strides; lines fastest, which is contiguous where channels are.
  __device__ static void store_elements(const ForwardParams& p, const Tile& tile, const Sum* staging, const Line* table,
                                        int pass) {
    const int ow0 = tile.origin.w * C.stride.w - C.padding.w;
    for (int item = int(threadIdx.x); item < pass_lines * box_rows * run; item += threads) {
      const int line_index = item % pass_lines, c = item / pass_lines % run, row = item / (pass_lines * run);
      const Line& line = table[table_row(pass, line_index)];
      const int od = (tile.origin.d + row / C.box.h) * C.stride.d + line.phase_d - C.padding.d;
      const int oh = (tile.origin.h + row % C.box.h) * C.stride.h + line.phase_h - C.padding.h;
      const int ow = ow0 + c;
      if (!line.exists || unsigned(od) >= unsigned(p.out.d) || unsigned(oh) >= unsigned(p.out.h) ||
          unsigned(ow) >= unsigned(p.out.w))
        continue;
      static_cast<Element*>(p.y)[line.offset + (od * p.ys.d + oh * p.ys.h + ow * p.ys.w)] =
          to_element<Element>(staging[line_index * line_stride + staged_row(row) + c] + line.bias);
    }
  }
};

}  // namespace tconv::device
// ---- mma/scale.cuh
// Scales that bring fp32 numbers into the range of fp16: powers of two, by which a panel of x and the weights of an
// output channel are multiplied before they are rounded or split, and which are undone in sums. A scale is kept as its
// exponent, as fp32 stores it.


namespace tconv::device {

__device__ inline float power_of_two(u32 exponent) { return __uint_as_float(exponent << 23); }

constexpr u32 infinity_bits = 0x7f800000;
/// The larger of `largest` and the magnitude of a number, which may be infinite; a NaN does not count.
__device__ inline float larger(float largest, float value) { return fmaxf(largest, fabsf(value)); }
/// The magnitude of a number, and 0 where it is not finite.
__device__ inline float finite_magnitude(float value) {
  const float magnitude = fabsf(value);
  return magnitude < __uint_as_float(infinity_bits) ? magnitude : 0.f;
}

/// Of numbers whose largest has these bits: it becomes 2^14 to 2^15.
__device__ inline u32 scale_for(u32 largest) { return u32(min(268 - int(largest >> 23), 253)); }
/// What undoes a scale; normal, as all scales are.
__device__ inline u32 undone(u32 scale) { return 254 - scale; }

// Where all products of a tile are one sum, panels of one scale are best: sums have to be scaled where it changes. So
// scales are 2^8 apart, and the largest number becomes 2^7 to 2^15: 11 bits remain of what is 2^-21 of it, and of a
// smaller number all bits above 2^-32 of it. Most x have a largest number between 2^-4 and 2^4, and one scale.
__device__ inline u32 coarse_scale_for(u32 largest) { return u32(min(266 - (int(largest >> 23) + 5) / 8 * 8, 253)); }
/// Of a panel of zeros, and of what is not finite.
constexpr u32 any_scale = 0;
/// Whether the largest number, so scaled, is below 2^15.
__device__ inline bool has_room(u32 scale, u32 largest) { return (largest >> 23) + scale < 269; }

/// What sums are multiplied by when their scale changes. Where they grow by more than `most_growth` they might no
/// longer be finite.
constexpr int most_growth = 64;
__device__ inline float change_of_scale(u32 from, u32 to) {
  return power_of_two(u32(max(127 + int(to) - int(from), 1)));
}

/// What undoes the scale of weights, in two factors: one for parts of a sum, together with what undoes the scale of x,
/// and one for the sum. The first is 2^-20 to 2^20, so that its product with what undoes the scale of x is not too
/// small for a number, and too large only where x is beyond 2^121.
struct Unscale {
  float of_part = 1, of_sum = 1;
  __device__ Unscale() {}
  __device__ explicit Unscale(float scale) {
    const int exponent = int(__float_as_uint(scale) >> 23), of_parts = min(max(exponent, 107), 147);
    of_part = power_of_two(u32(of_parts)), of_sum = power_of_two(u32(exponent - of_parts + 127));
  }
};

/// What undoes the scales of x and of weights in a whole sum: a factor, and the rest of it, which is hardly ever
/// needed.
struct UnscaleSum {
  float factor, rest;
  __device__ UnscaleSum(u32 x_scale, float of_weights) {
    const int exponent = int(undone(x_scale)) + int(__float_as_uint(of_weights) >> 23) - 254;
    const int most = min(max(exponent, -126), 127);
    factor = power_of_two(u32(127 + most)), rest = power_of_two(u32(127 + exponent - most));
  }
};

}  // namespace tconv::device
// ---- ptx/half.cuh
// Pairs of fp16 numbers in a word.


namespace tconv::device::ptx {

/// Both rounded to nearest.
__device__ inline u32 to_halves(float low, float high) {
  u32 word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
__device__ inline float low_half(u32 word) {
  float value;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(value) : "r"(word));
  return value;
}
__device__ inline float high_half(u32 word) {
  float value;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}" : "=f"(value) : "r"(word));
  return value;
}

}  // namespace tconv::device::ptx
// ---- mma/split.cuh
// fp32 on tensor cores: a number is split into a head and a remainder, of which three products are formed.
//
// Into TF32 numbers any can be split. fp16 numbers, whose products take half the time, have as many bits but a small
// range: what is split into them is scaled by a power of two first, so that the largest of its neighbours is about
// 2^15, and products are scaled back when they are added. Head and remainder hold 22 bits of a number that is at least
// 2^-17 of the largest; of a smaller one they hold all bits above 2^-39 of the largest.


namespace tconv::device {

/// The tensor core reads the upper 19 bits of a word and ignores the others, so the remainder needs no
/// rounding of its own: it loses at most 2^-23 of the word.
__device__ inline void split_tf32(u32 word, u32& head, u32& rest) {
  head = (word + 0x1000) & 0xffffe000;  // to nearest; a NaN survives in the remainder
  rest = __float_as_uint(__uint_as_float(word) - __uint_as_float(head));
}

/// Two numbers, scaled already.
__device__ inline void split_halves(float low, float high, u32& heads, u32& rests) {
  heads = ptx::to_halves(low, high);
  rests = ptx::to_halves(low - ptx::low_half(heads), high - ptx::high_half(heads));
}

}  // namespace tconv::device
// ---- ptx/mma.cuh
// mma.sync (sm_80): 16 x 8 products of one warp, and the conversions that feed them.


namespace tconv::device::ptx {

/// Rounds to TF32's 10 mantissa bits, to nearest, ties away from zero.
__device__ inline u32 round_tf32(u32 word) {
  u32 rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(word)));
  return rounded;
}

/// D += A·B for a 16 x 8 x 8 (tf32) or 16 x 8 x 16 (16-bit) product. Operands are in fragment order.
template <Math M>
__device__ inline void mma(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  if constexpr (M == Math::f16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else if constexpr (M == Math::bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// 16 x 8 x 8 of doubles, with the fragments of TF32, in two products of half the depth. Before sm_90 products are
/// 8 x 8 x 4, of a word of each lane. (m16n8k8 is one product, and as fast; but where one sum alone is formed in a
/// loop, assemblers leave out the wait between the last product of a round and the first one of the next:
/// tests/cuda/double_products_test.cpp.)
template <Math M>
__device__ inline void mma(double (&d)[4], const double (&a)[4], const double (&b)[2]) {
#pragma unroll
  for (int depth = 0; depth < 2; ++depth)
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[depth * 2]), "d"(a[depth * 2 + 1]), "d"(b[depth]));
#else
#pragma unroll
    for (int half = 0; half < 2; ++half)
      asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
          : "+d"(d[half * 2]), "+d"(d[half * 2 + 1])
          : "d"(a[depth * 2 + half]), "d"(b[depth]));
#endif
}

}  // namespace tconv::device::ptx
// ---- mma/products.cuh
// Products of warp tiles: which instruction forms them, and what is done to operands on the way.
//
//   f16, bf16   one m16n8k16 product
//   f64         two m16n8k4 products
//   tf32        one m16n8k8 product of operands rounded to nearest: x in its tile, weights when packed
//   fp32        three m16n8k8 products of operands split into a rounded head and a remainder,
//                 x·w = xh·wh + (xh·wl + xl·wh) + O(2^-22)
//               The tensor core truncates when it adds to its accumulator, which biases long sums by
//               half a unit per step. The three products are therefore summed from zero, small ones
//               first, and added to the running sum by the fp32 adder, which rounds to nearest.


namespace tconv::device {

/// The operands of one step of one warp: `M` row tiles of weights, `N` column tiles of inputs.
template <Math math, int M, int N>
struct Fragments {
  using Word = typename OperandWordFor<math>::Type;
  using Sum = SumFor<math>;
  Word a[M][4];
  Word b[N][2];

  /// sum += a·b for the row tiles in `mask`.
  __device__ void multiply(Sum (&sum)[M][N][4], u32 mask) {
    if constexpr (math == Math::fp32) {
      multiply_split(sum, mask);
    } else {
#pragma unroll
      for (int m = 0; m < M; ++m)
        if (mask >> m & 1) {
#pragma unroll
          for (int n = 0; n < N; ++n) ptx::mma<math>(sum[m][n], a[m], b[n]);
        }
    }
  }

 private:
  __device__ void multiply_split(Sum (&sum)[M][N][4], u32 mask) {
    u32 b_head[N][2], b_rest[N][2];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      split_tf32(b[n][0], b_head[n][0], b_rest[n][0]);
      split_tf32(b[n][1], b_head[n][1], b_rest[n][1]);
    }
#pragma unroll
    for (int m = 0; m < M; ++m)
      if (mask >> m & 1) {
        u32 a_head[4], a_rest[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) split_tf32(a[m][i], a_head[i], a_rest[i]);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          float part[4] = {0, 0, 0, 0};
          ptx::mma<Math::tf32>(part, a_rest, b_head[n]);
          ptx::mma<Math::tf32>(part, a_head, b_rest[n]);
          ptx::mma<Math::tf32>(part, a_head, b_head[n]);
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[m][n][i] += part[i];
        }
      }
  }
};

}  // namespace tconv::device
// ---- ptx/launch.cuh
// griddepcontrol (sm_90): a kernel that begins while the one before it ends. Kernels are launched so, but for the one
// that turns much of x (launch_rules.cuh), and wait themselves before they read or write memory.


namespace tconv::device::ptx {

#if __CUDA_ARCH__ >= 900
/// The next kernel may begin, as far as there is room, once all blocks of this one have come here.
__device__ inline void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// Waits until the kernel before this one is complete, and sees what it wrote.
__device__ inline void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
__device__ inline void let_next_begin() {}
__device__ inline void wait_for_previous() {}
#endif

/// At the end of a kernel that never says that the next one may begin: that one begins when all blocks have ended, and
/// what this thread has written is there for it without waiting.
__device__ inline void leave_for_next() { __threadfence(); }

/// Of a kernel that has nothing to prepare.
__device__ inline void begin_after_previous() {
  let_next_begin();
  wait_for_previous();
}

}  // namespace tconv::device::ptx
// ---- ptx/async_copy.cuh
// cp.async (sm_80): copies from global to shared memory that pass no register.


namespace tconv::device::ptx {

__device__ inline u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

/// Copies `Bytes` (4, 8 or 16), or writes that many zeros and reads nothing where `valid` is false.
template <int Bytes>
__device__ inline void copy_async(u32 shared, const void* global, bool valid) {
  const u32 source_bytes = valid ? Bytes : 0;
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(source_bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(shared), "l"(global), "r"(source_bytes),
                 "n"(Bytes)
                 : "memory");
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until all but the newest `Pending` committed groups of this thread have arrived.
template <int Pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace tconv::device::ptx
// ---- tiles/weight_slab.cuh
// The weight slab: the A fragments of one chunk of channels and a few steps, in shared memory.
//
// Packed weights lie in memory exactly as fragments are read, [row block][octet][step][row tile][lane][4],
// so the steps of an octet are one contiguous run and an A fragment is one 16-byte read per lane, or two of doubles:
// [row tile][half][lane][2]. The order knows nothing of tiles: one packing serves them all.


namespace tconv::device {

/// A lane's part of a row tile, whose words it finds 16 bytes at a time.
__device__ inline void read_fragment(u32 (&fragment)[4], const uint4* from) {
  const uint4 v = *from;
  fragment[0] = v.x, fragment[1] = v.y, fragment[2] = v.z, fragment[3] = v.w;
}
__device__ inline void read_fragment(double (&fragment)[4], const uint4* from) {
  const double2 low = *reinterpret_cast<const double2*>(from);
  const double2 high = *reinterpret_cast<const double2*>(from + warp_size);
  fragment[0] = low.x, fragment[1] = low.y, fragment[2] = high.x, fragment[3] = high.y;
}

template <GemmConfig C>
struct WeightSlab {
  using Word = OperandWord<C>;
  static constexpr int row_tiles = row_tiles_of(C);
  static constexpr int substeps = substeps_of(C);
  static constexpr int step_words = device::step_words(C);
  static constexpr int words = slab_words(C);
  // In copies of 16 bytes, as fragments are read.
  static constexpr int step_copies = step_words * word_bytes(C) / 16, tile_copies = step_copies / row_tiles;
  static constexpr int threads = threads_of(C);

  /// Loads `count` steps of each octet of the chunk; `packed` is the first of them, octets lie `steps` apart.
  __device__ static void load(Word* slab, const Word* packed, int count, int steps) {
    const u32 base = ptx::shared_address(slab);
    const uint4* const from = reinterpret_cast<const uint4*>(packed);
#pragma unroll
    for (int k = 0; k < substeps; ++k)
      for (int i = threadIdx.x; i < count * step_copies; i += threads)
        ptx::copy_async<16>(base + (k * C.steps_per_slab * step_copies + i) * 16,
                            from + i64(k) * steps * step_copies + i, true);
  }
};

}  // namespace tconv::device
// ---- tiles/x_tile.cuh
// The input tile: a box of positions with its halo, for one chunk of channels, in shared memory.
//
// It holds words: one fp32 channel, or two 16-bit channels of one position, or a double. A B fragment of
// mma.sync is one word per register wherever it starts, so a tap is a constant offset into the tile and
// one tile serves all taps.
//
//   channels first:  word (k, position) at k·word_stride + position, word_stride = 8 mod 32
//   channels last:   word (k, position) at position·(chunk + 4) + k
//
// Both make the 32 words of a fragment, 4 words deep and 8 positions wide, fall into 32 banks. Words of 64 bits, of
// which half a warp reads at a time, have other strides to the same end.


namespace tconv::device {

/// The threads that load a tile are the whole block.
struct BlockThreads {
  __device__ static int index() { return threadIdx.x; }
};

template <GemmConfig C, class Threads = BlockThreads>
struct XTile {
  using Element = ElementOf<C>;
  using Word = OperandWord<C>;
  static constexpr int channels_per_word = device::channels_per_word(C);
  static constexpr int chunk = C.chunk_words;
  static constexpr int threads = loading_threads(C);
  static constexpr bool last = C.x_channels_last;
  // Copies move `vector` words: along positions (channels first) or channels (channels last).
  // 0 stands for single 16-bit elements.
  static constexpr int vector = C.x_vector;
  static constexpr Int3 extent = x_extent(C);
  static constexpr int positions = x_inputs(C);
  static constexpr int word_stride = x_word_stride(C);
  static constexpr int position_stride = x_position_stride(C);
  static constexpr int words = round_up(x_tile_words(C), 4);

  /// Copies pass through registers: there is nothing asynchronous about them.
  static constexpr bool through_registers = last ? vector == 0 : channels_per_word == 2;

  /// Word offset of a column of the box, before a tap's own offset is added.
  __device__ static int column_offset(int column) {
    const int w = column % C.box.w, row = column / C.box.w;
    const int h = row % C.box.h, d = row / C.box.h;  // d also counts the slices of one image after another
    const int slice = d % C.box.d + d / C.box.d * extent.d;
    return ((slice * extent.h + h) * extent.w + w) * position_stride;
  }

  // Units of copying and who copies them. Channels first, a thread keeps its units of positions and
  // walks down the chunk; channels last, a unit is a run of words of one position.
  static constexpr int units = last ? positions * (vector ? chunk / vector : chunk * channels_per_word) : x_units(C);
  static constexpr int unit_lanes = last ? threads : x_unit_lanes(C);
  static constexpr int depth_lanes = threads / unit_lanes;
  static constexpr int slots = ceil_div(units, unit_lanes);

  static_assert(threads % unit_lanes == 0, "warps must come in powers of two");

  /// Reads chunk after chunk of one tile after another.
  struct Loader {
    const Element* image;  // channel 0 of the group
    i64 channel_stride;
    int offset[slots];  // of each unit inside the image, -1 where it is outside

    __device__ static int unit_position(int unit) {
      return last ? unit / (vector ? chunk / vector : chunk * channels_per_word) : unit * max_of(vector, 1);
    }

    __device__ void seek(const ForwardParams& p, const Tile& tile) {
      image = static_cast<const Element*>(p.x) + tile.n * p.xs.n + i64(tile.group) * C.group_in * p.xs.c;
      channel_stride = p.xs.c;
      const Int3 start{tile.origin.d - C.reach.d, tile.origin.h - C.reach.h, tile.origin.w - C.reach.w - x_lead(C)};
#pragma unroll
      for (int s = 0; s < slots; ++s) {
        const int unit = Threads::index() % unit_lanes + s * unit_lanes;
        const int position = unit_position(unit);
        const int w = start.w + position % extent.w, row = position / extent.w;
        const int slice = row / extent.h, image = slice / extent.d;
        const int h = start.h + row % extent.h, d = start.d + slice % extent.d;
        const bool inside = unsigned(w) < unsigned(p.in.w) && unsigned(h) < unsigned(p.in.h) &&
                            unsigned(d) < unsigned(p.in.d) && (C.images == 1 || tile.n + image < p.batch);
        offset[s] = inside ? d * p.xs.d + h * p.xs.h + w * p.xs.w + (C.images == 1 ? 0 : image * int(p.xs.n)) : -1;
      }
    }

    __device__ void load(Word* tile, int chunk_index) const {
      if constexpr (last)
        load_channels_last(tile, chunk_index);
      else if constexpr (channels_per_word == 1)
        load_channels_first(tile, chunk_index);
      else
        load_channel_pairs(tile, chunk_index);
    }

    /// Rounds to TF32 what this thread has copied and waited for: once per word, not once per tap.
    __device__ static void round(u32* tile) {
      static_assert(channels_per_word == 1);
      if constexpr (last) {
        constexpr int units_per_position = chunk / vector;
#pragma unroll
        for (int s = 0; s < slots; ++s) {
          const int unit = Threads::index() + s * threads;
          if (units % threads != 0 && s == slots - 1 && unit >= units) break;
          round_words(tile + unit / units_per_position * position_stride + unit % units_per_position * vector);
        }
      } else {
        const int depth = Threads::index() / unit_lanes, lane = Threads::index() % unit_lanes;
#pragma unroll
        for (int k = 0; k < ceil_div(chunk, depth_lanes); ++k) {
          const int word = k * depth_lanes + depth;
          if (chunk % depth_lanes != 0 && word >= chunk) break;
#pragma unroll
          for (int s = 0; s < slots; ++s) {
            if (units % unit_lanes != 0 && s == slots - 1 && lane + s * unit_lanes >= units) break;
            round_words(tile + word * word_stride + (lane + s * unit_lanes) * vector);
          }
        }
      }
    }

   private:
    __device__ static void round_words(u32* words) {
      if constexpr (vector == 4) {
        const uint4 v = *reinterpret_cast<const uint4*>(words);
        *reinterpret_cast<uint4*>(words) =
            make_uint4(ptx::round_tf32(v.x), ptx::round_tf32(v.y), ptx::round_tf32(v.z), ptx::round_tf32(v.w));
      } else {
        *words = ptx::round_tf32(*words);
      }
    }

    __device__ static bool in_group(int channel) {
      return C.group_in % (chunk * channels_per_word) == 0 || channel < C.group_in;
    }

    __device__ void load_channels_first(Word* tile, int chunk_index) const {
      const int depth = Threads::index() / unit_lanes, lane = Threads::index() % unit_lanes;
      const u32 base = ptx::shared_address(tile) + (depth * word_stride + lane * vector) * int(sizeof(Word));
      const Element* const channel = image + (i64(chunk_index) * chunk + depth) * channel_stride;
      const i64 step = depth_lanes * channel_stride;
#pragma unroll
      for (int s = 0; s < slots; ++s) {
        if (units % unit_lanes != 0 && s == slots - 1 && lane + s * unit_lanes >= units) break;
        // Where nothing is copied the address is not read.
        const Element* source = channel + offset[s];
#pragma unroll
        for (int k = 0; k < ceil_div(chunk, depth_lanes); ++k, source += step) {
          const int word = k * depth_lanes + depth;
          if (chunk % depth_lanes != 0 && word >= chunk) break;
          const int place = (k * depth_lanes * word_stride + s * unit_lanes * vector) * int(sizeof(Word));
          ptx::copy_async<vector * sizeof(Word)>(base + place, source,
                                                 offset[s] >= 0 && in_group(chunk_index * chunk + word));
        }
      }
    }

    __device__ void load_channels_last(Word* tile, int chunk_index) const {
      constexpr int units_per_position = vector ? chunk / vector : chunk * channels_per_word;
#pragma unroll
      for (int s = 0; s < slots; ++s) {
        const int unit = Threads::index() + s * threads;
        if (units % threads != 0 && s == slots - 1 && unit >= units) break;
        const int position = unit / units_per_position, part = unit % units_per_position;
        if constexpr (vector > 0) {
          const int channel = (chunk_index * chunk + part * vector) * channels_per_word;
          const bool valid = offset[s] >= 0 && in_group(channel);
          ptx::copy_async<vector * sizeof(Word)>(ptx::shared_address(tile + position * position_stride + part * vector),
                                                 image + offset[s] + channel * channel_stride, valid);
        } else {
          const int channel = chunk_index * chunk * channels_per_word + part;
          const bool valid = offset[s] >= 0 && in_group(channel);
          Element value{};
          if (valid) value = image[offset[s] + channel * channel_stride];
          reinterpret_cast<Element*>(tile + position * position_stride)[part] = value;
        }
      }
    }

    // 16-bit channels first: two channels meet in one word, so the copy passes through registers.
    __device__ void load_channel_pairs(u32* tile, int chunk_index) const {
      const int depth = Threads::index() / unit_lanes;
#pragma unroll
      for (int s = 0; s < slots; ++s) {
        const int unit = Threads::index() % unit_lanes + s * unit_lanes;
        if (units % unit_lanes != 0 && s == slots - 1 && unit >= units) break;
#pragma unroll 2
        for (int word = depth; word < chunk; word += depth_lanes) {
          const int even = (chunk_index * chunk + word) * 2;
          const Element* source = image + i64(even) * channel_stride + offset[s];
          u32* target = tile + word * word_stride + unit * vector;
          const bool inside = offset[s] >= 0;
          interleave(target, source, source + channel_stride, inside && in_group(even), inside && in_group(even + 1));
        }
      }
    }

    /// target[i] = {low[i], high[i]} for `vector` positions.
    __device__ static void interleave(u32* target, const Element* low, const Element* high, bool has_low,
                                      bool has_high) {
      if constexpr (vector == 1) {
        const u32 a = has_low ? reinterpret_cast<const u16&>(*low) : 0;
        const u32 b = has_high ? reinterpret_cast<const u16&>(*high) : 0;
        *target = a | b << 16;
      } else {
        constexpr int pairs = vector / 2;
        u32 a[pairs] = {}, b[pairs] = {};
        if (has_low) read(a, low);
        if (has_high) read(b, high);
        u32 words[vector];
#pragma unroll
        for (int i = 0; i < pairs; ++i) {
          words[2 * i] = __byte_perm(a[i], b[i], 0x5410);
          words[2 * i + 1] = __byte_perm(a[i], b[i], 0x7632);
        }
        if constexpr (vector == 2) {
          *reinterpret_cast<uint2*>(target) = make_uint2(words[0], words[1]);
        } else {
#pragma unroll
          for (int i = 0; i < vector; i += 4)
            *reinterpret_cast<uint4*>(target + i) = make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
        }
      }
    }
    template <int Pairs>
    __device__ static void read(u32 (&to)[Pairs], const Element* from) {
      if constexpr (Pairs == 4) {
        const uint4 v = *reinterpret_cast<const uint4*>(from);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
      } else {
        to[0] = *reinterpret_cast<const u32*>(from);
      }
    }
  };
};

}  // namespace tconv::device
// ---- implicit_gemm.cuh
// The general tensor-core kernel (sm_80): a transposed convolution as one matrix product per row block.
//
//   rows     (phase, output channel), packed into blocks whose phases share a list of steps
//   columns  a box of positions q
//   depth    for each chunk of channels, for each step (a tap's shift): eight words of channels
//
// Persistent blocks walk over tiles (row block, box, image). One pipeline of asynchronous copies runs
// ahead of the products and across tile borders, so the loads of the next tile are under way while the
// sums of this one are stored.
//
// C is the configuration (gemm_config.cuh), Tables the generated step and line tables (codegen.cpp).


namespace tconv::device {

template <GemmConfig C, class Tables>
struct ImplicitGemm {
  using Params = ForwardParams;
  using Word = OperandWord<C>;
  using X = XTile<C>;
  using W = WeightSlab<C>;
  using Store = StagedStore<C>;
  using Sum = SumFor<C.math>;

  static constexpr int threads = threads_of(C);
  static constexpr int stages = C.stages;
  static constexpr int chunks = chunks_of(C);
  static constexpr bool weights_resident = C.resident_steps > 0;
  static constexpr int weight_words = weight_ring_words(C);
  static constexpr int x_words = C.x_stages * X::words;

  /// Issues the loads of one slab after another, `stages` − 1 slabs ahead of the products.
  struct Producer {
    const Params& p;
    Word* weight_ring;
    Word* x_ring;
    int tile_index, chunk = 0, step = 0;  // what comes next
    int slab_slot = 0, x_slot = 0;
    Tile tile;
    typename X::Loader loader;

    __device__ Producer(const Params& params, Word* weights, Word* x)
        : p(params), weight_ring(weights), x_ring(x), tile_index(blockIdx.x) {
      seek();
    }

    /// Moves to the first tile at or after tile_index that has products.
    __device__ void seek() {
      for (; tile_index < p.tiles; tile_index += gridDim.x) {
        tile = Tile::decode<C>(p, tile_index);
        if (Tables::steps(tile.type) > 0) {
          loader.seek(p, tile);
          return;
        }
      }
    }

    __device__ void load_next() {
      if (tile_index < p.tiles) {
        const int steps = Tables::steps(tile.type);
        if (step == 0) {
          loader.load(x_ring + x_slot * X::words, chunk);
          if (++x_slot == C.x_stages) x_slot = 0;
        }
        const int count = min(C.steps_per_slab, steps - step);
        if constexpr (!weights_resident) {
          W::load(weight_ring + slab_slot * W::words, packed_weights(p, tile, chunk * W::substeps * steps + step),
                  count, steps);
          if (++slab_slot == stages) slab_slot = 0;
        }
        if ((step += count) == steps) {
          step = 0;
          if (++chunk == chunks) {
            chunk = 0;
            tile_index += gridDim.x;
            seek();
          }
        }
      }
      ptx::commit_copies();
    }
  };

  __device__ static const Word* packed_weights(const Params& p, const Tile& tile, int step) {
    const i64 steps = i64(Tables::steps(tile.type)) * octets_of(C);
    const i64 block = i64(tile.group) * C.channel_blocks + tile.channel_block;
    return reinterpret_cast<const Word*>(p.weight) + Tables::weight_base(tile.type) +
           (block * steps + step) * W::step_words;
  }

  __device__ static void run(const Params& p) {
    extern __shared__ __align__(16) u32 shared[];
    Word* const weights = reinterpret_cast<Word*>(shared);
    Word* const x_ring = weights + weight_words;
    const auto epilogue = Store::memory(x_ring + x_words);
    ptx::let_next_begin();
    Store::clear(epilogue);
    ptx::wait_for_previous();

    if constexpr (weights_resident) {
      constexpr int copies = weight_words * int(sizeof(Word)) / 16;
      for (int i = threadIdx.x; i < copies; i += threads)
        ptx::copy_async<16>(ptx::shared_address(weights) + i * 16, p.weight + i * 4, true);
    }
    Producer producer(p, weights, x_ring);
#pragma unroll
    for (int s = 0; s < stages - 1; ++s) producer.load_next();

    const Consumer consumer;
    int slab_slot = 0, x_slot = 0, turn = 0;
    for (int index = blockIdx.x; index < p.tiles; index += gridDim.x, turn ^= 1) {
      const Tile tile = Tile::decode<C>(p, index);
      Store::describe_lines(p, tile, epilogue.table[turn], Tables{});
      const int steps = Tables::steps(tile.type), first_entry = Tables::first_entry(tile.type);
      Sum sum[C.tiles_m][C.tiles_n][4] = {};
      if (steps > 0) {
        for (int chunk = 0; chunk < chunks; ++chunk) {
          for (int step = 0; step < steps; step += C.steps_per_slab) {
            ptx::wait_copies<stages - 2>();
            if constexpr (C.math == Math::tf32) {
              if (step == 0) X::Loader::round(x_ring + x_slot * X::words);
            }
            __syncthreads();  // this slab has arrived for everyone, and the slot before it is free
            producer.load_next();
            const Word* slab = weights_resident ? weights + (chunk * W::substeps * steps + step) * W::step_words
                                                : weights + slab_slot * W::words;
            consumer.multiply(sum, x_ring + x_slot * X::words, slab, weights_resident ? steps : C.steps_per_slab,
                              first_entry + step, min(C.steps_per_slab, steps - step));
            if (++slab_slot == stages) slab_slot = 0;
          }
          if (++x_slot == C.x_stages) x_slot = 0;
        }
      }
      Store::store(p, tile, epilogue, epilogue.table[turn], sum);
    }
  }

  /// One warp's part of the products.
  struct Consumer {
    int first_row_tile;
    // Where this lane finds its word of each column tile. Tiles of one row of the box follow each other.
    static constexpr bool one_row = C.box.w % (C.tiles_n * 8) == 0;
    int column[one_row ? 1 : C.tiles_n];
    static constexpr bool paired = C.chunk_words < 8;

    __device__ Consumer() {
      const int warp_m = warp_index() / C.warps_n, warp_n = warp_index() % C.warps_n;
      first_row_tile = warp_m * C.tiles_m;
      const int lane_offset = lane_index() % 4 * X::word_stride + lane_index() / 4 * X::position_stride;
#pragma unroll
      for (int n = 0; n < (one_row ? 1 : C.tiles_n); ++n)
        column[n] = lane_offset + X::column_offset((warp_n * C.tiles_n + n) * 8);
    }

    using F = Fragments<C.math, C.tiles_m, C.tiles_n>;

    /// A step as the table has it. Reading the table takes as long as a product: it is read two steps early.
    struct Entry {
      int low, high;  // where the step finds its first and its last four words
      u32 mask;       // the row tiles it is for
    };
    __device__ Entry entry(int index) const {
      return {Tables::low_offset(index), paired ? Tables::high_offset(index) : 0,
              C.masked ? Tables::mask(index) >> first_row_tile : ~0u};
    }

    /// The operands of one product: `x` the octet, `a` this lane's part of the step's row tiles.
    __device__ void load(F& f, const Word* x, const uint4* a, const Entry& step) const {
#pragma unroll
      for (int m = 0; m < C.tiles_m; ++m) read_fragment(f.a[m], a + m * W::tile_copies);
#pragma unroll
      for (int n = 0; n < C.tiles_n; ++n) {
        const Word* from = x + (one_row ? column[0] + n * 8 * X::position_stride : column[n]);
        f.b[n][0] = from[step.low];
        f.b[n][1] = paired ? from[step.high] : from[step.low + 4 * X::word_stride];
      }
    }

    /// sum += the slab's products, step by step and octet by octet. Operands are read one product early, into
    /// two buffers that take turns; what is read after the last step repeats it and is not used.
    __device__ void multiply(Sum (&sum)[C.tiles_m][C.tiles_n][4], const Word* x, const Word* slab, int octet_steps,
                             int first_entry, int count) const {
      const uint4* const a = reinterpret_cast<const uint4*>(slab) + first_row_tile * W::tile_copies + lane_index();
      const auto entry_of = [&](int s) { return entry(first_entry + min(s, count - 1)); };
      const auto load_from = [&](F& f, const Entry& step, int s, int k) {
        load(f, x + k * 8 * X::word_stride, a + (k * octet_steps + min(s, count - 1)) * W::step_copies, step);
      };
      F f[2];
      Entry now = entry_of(0), next = entry_of(1);
      load_from(f[0], now, 0, 0);
      if constexpr (W::substeps == 1) {
        Entry after = entry_of(2);
#pragma unroll 1
        for (int s = 0; s + 1 < count; s += 2) {
          load_from(f[1], next, s + 1, 0);
          f[0].multiply(sum, now.mask);
          const u32 mask = next.mask;
          now = after, next = entry_of(s + 3), after = entry_of(s + 4);
          load_from(f[0], now, s + 2, 0);
          f[1].multiply(sum, mask);
        }
        if (count % 2 == 1) f[0].multiply(sum, now.mask);
      } else {
#pragma unroll 1
        for (int s = 0; s < count; ++s) {
          const Entry after = entry_of(s + 2);
#pragma unroll
          for (int k = 0; k < W::substeps; ++k) {
            if (k + 1 < W::substeps)
              load_from(f[(k + 1) % 2], now, s, k + 1);
            else
              load_from(f[0], next, s + 1, 0);
            f[k % 2].multiply(sum, now.mask);
          }
          now = next, next = after;
        }
      }
    }

    static_assert(W::substeps == 1 || W::substeps % 2 == 0, "operand buffers must take turns");
  };
};

}  // namespace tconv::device
// ---- words.cuh
// Words that move as one, and elements as bits of them.


namespace tconv::device {

/// 32-bit words as they lie in memory. One word may hold a single 16-bit element.
template <int Count>
struct alignas(Count * 4) Words {
  u32 word[Count];
};

/// What moves so many bytes at once.
template <int Bytes>
struct WordOf;
template <>
struct WordOf<2> {
  using Type = u16;
};
template <>
struct WordOf<4> {
  using Type = u32;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};

__device__ inline u32 bits_of(float value) { return __float_as_uint(value); }
template <class Half>
__device__ u32 bits_of(Half value) {
  return value.bits;
}

template <class Element>
__device__ Element element_of(u32 bits) {
  if constexpr (sizeof(Element) == 2)
    return {static_cast<u16>(bits)};
  else
    return __uint_as_float(bits);
}

/// Sixteen bytes from `shift` elements on, of the 32 bytes low, high.
template <class Element>
__device__ inline Words<4> shifted(const Words<4>& low, const Words<4>& high, int shift) {
  const int bytes = shift * int(sizeof(Element));
  u32 w[8], v[6], r[5];
#pragma unroll
  for (int i = 0; i < 4; ++i) w[i] = low.word[i], w[i + 4] = high.word[i];
#pragma unroll
  for (int i = 0; i < 6; ++i) v[i] = bytes & 8 ? w[i + 2] : w[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) r[i] = bytes & 4 ? v[i + 1] : v[i];
  Words<4> result;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    result.word[i] = sizeof(Element) == 2 ? __funnelshift_r(r[i], r[i + 1], bytes % 4 * 8) : r[i];
  return result;
}

}  // namespace tconv::device
// ---- pack.cuh
// Packs a weight [in, out / groups, kernel…] of any strides in the order its kernel reads it. A row is a phase
// of a channel and a step a shift; the tap that joins them is
//   k·dilation = shift·stride + phase,  if there is one.
// Where several inputs are one position, phases go on to the next ones and shifts may be negative.
//
// A warp takes a few row tiles of one octet and step at a time: what leads there is worked out once for many words,
// a warp stores whole lines, and the steps of an octet, which read the same sectors of the weight, are packed by
// neighbouring warps at the same time.
//
// The next kernel begins when this one has ended: so all that follow may read packed weights without waiting
// (panel_gemm.cuh).


namespace tconv::device {

/// The tap of one dimension at which `phase` reads input q − shift, or -1.
__device__ inline int tap_of(int shift, int phase, int stride, int dilation, int kernel) {
  const int target = shift * stride + phase;
  const int k = target / dilation;
  return target >= 0 && target % dilation == 0 && k < kernel ? k : -1;
}

/// Takes the fastest index off a running index.
__device__ inline int take(u32& rest, int size) {
  const u32 index = rest % u32(size);
  rest /= u32(size);
  return int(index);
}

/// What a warp packs at a time: row tiles of one step, from `first_tile`.
struct Piece {
  static constexpr int tiles = 4;
  int type, group, channel_block, octet, step, first_tile;
  i64 first_word;  // of the step

  /// Pieces of a weight whose steps have so many words.
  template <int StepWords, int RowTiles>
  __device__ static i64 count(const PackParams& p) {
    return p.words / StepWords * ceil_div(RowTiles, tiles);
  }

  template <GemmConfig C, class Tables, int StepWords, int RowTiles>
  __device__ static Piece decode(const PackParams& p, u32 index) {
    Piece at;
    at.first_tile = take(index, ceil_div(RowTiles, tiles)) * tiles;
    at.first_word = i64(index) * StepWords;
    at.type = 0;
    while (at.type + 1 < C.types && at.first_word >= Tables::weight_base(at.type + 1)) ++at.type;
    u32 rest = u32((at.first_word - Tables::weight_base(at.type)) / StepWords);
    at.octet = take(rest, C.octet_group), at.step = take(rest, Tables::steps(at.type));
    at.octet += take(rest, octets_of(C) / C.octet_group) * C.octet_group;
    at.channel_block = take(rest, C.channel_blocks), at.group = int(rest);
    return at;
  }
};

/// Where a row's weights of a step are, in elements from those of an input channel.
struct Filter {
  bool exists;
  i64 offset;
};

template <GemmConfig C, class Row>
__device__ Filter filter_of(const PackParams& p, const Row& row, int channel_block, const Int3& shift) {
  const int co = channel_block * C.channels_per_block + row.channel;
  const int kd = tap_of(shift.d, row.phase.d, C.stride.d, C.dilation.d, C.kernel.d);
  const int kh = tap_of(shift.h, row.phase.h, C.stride.h, C.dilation.h, C.kernel.h);
  const int kw = tap_of(shift.w, row.phase.w, input_stride(C), C.dilation.w, C.kernel.w);
  Filter filter{row.channel >= 0 && shift.d >= 0 && co < C.group_out && kd >= 0 && kh >= 0 && kw >= 0,
                layer_channel(C, co) * p.stride_out};
  if constexpr (C.kernel.d > 1) filter.offset += kd * p.stride_d;
  if constexpr (C.kernel.h > 1) filter.offset += kh * p.stride_h;
  if constexpr (C.channel_phases.count > 1) {
    const int tap = kw * C.channel_phases.count + phase_of_channel(C, co) + C.channel_phases.first_tap;
    filter.exists = filter.exists && unsigned(tap) < unsigned(C.channel_phases.taps);
    filter.offset += tap * p.stride_w;
  } else if constexpr (C.kernel.w > 1) {
    filter.offset += kw * p.stride_w;
  }
  return filter;
}

/// A word of input channels.
template <GemmConfig C>
struct ChannelWord {
  static constexpr int per_word = channels_per_word(C);
  i64 offset;    // of its first channel
  int channels;  // how many there are from it on

  __device__ ChannelWord(const PackParams& p, int group, int word)
      : offset((i64(group) * C.group_in + word * per_word) * p.stride_in), channels(C.group_in - word * per_word) {}

  /// The weights of a row, as bits where they are not doubles; zero where there are none. Something is read always, and
  /// masks choose: a branch would keep the loads of a piece from being under way together.
  __device__ OperandWord<C> load(const PackParams& p, const Filter& filter) const {
    if constexpr (C.math == Math::f64) {
      const i64 there = -i64(filter.exists && channels > 0);
      const double weight = static_cast<const double*>(p.weight)[(offset + filter.offset) & there];
      return there ? weight : 0;
    } else {
      u32 word = 0;
#pragma unroll
      for (int i = 0; i < per_word; ++i) word |= load_channel(p, filter, i) << (16 * i);
      return C.math == Math::tf32 ? ptx::round_tf32(word) : word;
    }
  }
  __device__ u32 load_channel(const PackParams& p, const Filter& filter, int i) const {
    const int there = -int(filter.exists && i < channels);
    const i64 from = (offset + filter.offset + i * p.stride_in) & i64(there);
    return bits_of(static_cast<const ElementOf<C>*>(p.weight)[from]) & u32(there);
  }
};

__device__ inline u32 first_piece() { return blockIdx.x * (blockDim.x / warp_size) + warp_index(); }
__device__ inline u32 pieces_apart() { return gridDim.x * (blockDim.x / warp_size); }

/// A lane's part of a row tile, in 16 bytes that are next to those of other lanes.
__device__ inline void write_fragment(u32* tile, int lane, const u32 (&v)[4]) {
  reinterpret_cast<uint4*>(tile)[lane] = make_uint4(v[0], v[1], v[2], v[3]);
}
__device__ inline void write_fragment(double* tile, int lane, const double (&v)[4]) {
  reinterpret_cast<double2*>(tile)[lane] = make_double2(v[0], v[1]);
  reinterpret_cast<double2*>(tile)[warp_size + lane] = make_double2(v[2], v[3]);
}

/// [type][group][channel block][octet][step][row tile][lane][4]: A fragments of mma.sync (tiles/weight_slab.cuh).
template <GemmConfig C, class Tables>
__device__ void pack_fragments(const PackParams& p) {
  ptx::wait_for_previous();
  constexpr bool paired = C.chunk_words < 8;
  constexpr int tiles = row_tiles_of(C), tile_words = warp_size * 4, step_words = tiles * tile_words;
  const int lane = lane_index();
  const i64 count = Piece::count<step_words, tiles>(p);
  for (u32 index = first_piece(); index < count; index += pieces_apart()) {
    const Piece at = Piece::decode<C, Tables, step_words, tiles>(p, index);
    const Int3 low = Tables::step_shift(at.type, at.step, false);
    const Int3 high = paired ? Tables::step_shift(at.type, at.step, true) : low;
    const ChannelWord<C> low_word(p, at.group, at.octet * 8 + lane % 4);
    const ChannelWord<C> high_word(p, at.group, at.octet * 8 + lane % 4 + (paired ? 0 : 4));
    OperandWord<C> fragments[Piece::tiles][4];
#pragma unroll
    for (int i = 0; i < Piece::tiles; ++i) {
      const int first = min_of(at.first_tile + i, tiles - 1) * 16 + lane / 4;
      const auto upper = Tables::row(at.type, first), lower = Tables::row(at.type, first + 8);
      const Filter upper_low = filter_of<C>(p, upper, at.channel_block, low);
      const Filter lower_low = filter_of<C>(p, lower, at.channel_block, low);
      const Filter upper_high = paired ? filter_of<C>(p, upper, at.channel_block, high) : upper_low;
      const Filter lower_high = paired ? filter_of<C>(p, lower, at.channel_block, high) : lower_low;
      fragments[i][0] = low_word.load(p, upper_low), fragments[i][1] = low_word.load(p, lower_low);
      fragments[i][2] = high_word.load(p, upper_high), fragments[i][3] = high_word.load(p, lower_high);
    }
#pragma unroll
    for (int i = 0; i < Piece::tiles; ++i)
      if (at.first_tile + i < tiles)
        write_fragment(reinterpret_cast<OperandWord<C>*>(p.packed) + at.first_word + (at.first_tile + i) * tile_words,
                       lane, fragments[i]);
  }
  ptx::leave_for_next();
}

/// [type][group][channel block][octet / group][step][octet of the group][part][row / 8][word / 4][row % 8][4]: operands
/// of wgmma. In fp32 a part is the head or the remainder of the weights.
template <GemmConfig C, class Tables>
__device__ void pack_rows(const PackParams& p) {
  ptx::wait_for_previous();
  constexpr bool paired = C.chunk_words < 8;
  constexpr int parts = weight_parts(C), tiles = C.rows / 8, tile_words = 64;
  constexpr int part_words = tiles * tile_words, step_words = parts * part_words;
  const int lane = lane_index();
  const i64 count = Piece::count<step_words, tiles>(p);
  for (u32 index = first_piece(); index < count; index += pieces_apart()) {
    const Piece at = Piece::decode<C, Tables, step_words, tiles>(p, index);
    const Int3 low = Tables::step_shift(at.type, at.step, false);
    const Int3 high = paired ? Tables::step_shift(at.type, at.step, true) : low;
    const ChannelWord<C> low_word(p, at.group, at.octet * 8 + lane % 4);
    const ChannelWord<C> high_word(p, at.group, at.octet * 8 + lane % 4 + (paired ? 0 : 4));
    // Of what is scaled a word is two numbers, not split yet.
    constexpr bool scaled = scales(C.math);
    u32 words[Piece::tiles][2][scaled ? 2 : 1];
    float scale[Piece::tiles];
#pragma unroll
    for (int i = 0; i < Piece::tiles; ++i) {
      const auto row = Tables::row(at.type, min_of(at.first_tile + i, tiles - 1) * 8 + lane / 4);
      const Filter lower = filter_of<C>(p, row, at.channel_block, low);
      const Filter upper = paired ? filter_of<C>(p, row, at.channel_block, high) : lower;
      if constexpr (scaled) {
        const int channel = at.channel_block * C.channels_per_block + row.channel;
        const bool exists = row.channel >= 0 && channel < C.group_out;
        scale[i] = 1 / p.scales[exists ? layer_channel(C, at.group * C.group_out + channel) : 0];
#pragma unroll
        for (int k = 0; k < 2; ++k)
          words[i][0][k] = low_word.load_channel(p, lower, k), words[i][1][k] = high_word.load_channel(p, upper, k);
      } else {
        words[i][0][0] = low_word.load(p, lower), words[i][1][0] = high_word.load(p, upper);
      }
    }
#pragma unroll
    for (int i = 0; i < Piece::tiles; ++i) {
      if (at.first_tile + i >= tiles) break;
      u32* const tile = p.packed + at.first_word + (at.first_tile + i) * tile_words + lane;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto& word = words[i][half];
        u32 head = word[0], remainder;
        if constexpr (scaled) {
          split_halves(__uint_as_float(word[0]) * scale[i], __uint_as_float(word[1]) * scale[i], head, remainder);
          if constexpr (parts == 2) tile[part_words + half * 32] = remainder;
        } else if constexpr (parts == 2) {
          split_tf32(word[0], head, remainder);
          tile[part_words + half * 32] = ptx::round_tf32(remainder);
        }
        tile[half * 32] = head;
      }
    }
  }
  ptx::leave_for_next();
}

}  // namespace tconv::device
// ---- ptx/barrier.cuh
// Barriers: mbarrier in shared memory (sm_90), and named barriers of part of a block.


namespace tconv::device::ptx {

__device__ inline void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Makes initialised barriers visible to copies that will complete on them.
__device__ inline void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives, and expects `bytes` more from copies before the phase completes.
__device__ inline void barrier_arrive_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Waits until the phase with this parity has completed. Never wait more than one phase ahead.
__device__ inline void barrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@done bra ready;\n"
      "bra again;\n"
      "ready:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Whether the phase with this parity has completed.
__device__ inline bool barrier_test(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// Arrives when all copies this thread has begun (copy_async) are complete.
__device__ inline void barrier_arrive_copies(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

/// What this thread has written to shared memory is seen by the asynchronous instructions of others that wait for it.
__device__ inline void async_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Synchronises `Threads` threads of the block that name the same barrier (1 to 15; 0 is __syncthreads).
__device__ inline void named_sync(int name, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

}  // namespace tconv::device::ptx
// ---- panel/roles.cuh
// Who does what in a block of the panel kernel. A block has teams; of a team, the first warpgroups fill panels, and
// each of the others is a member that multiplies and stores.


namespace tconv::device {

template <GemmConfig C>
struct PanelRoles {
  static constexpr int loaders = panel_loaders(C), team_threads = loaders + members_of(C) * warpgroup_size;
  __device__ static int team() { return threadIdx.x / team_threads; }
  /// Of a thread that multiplies: which warpgroup of the team it is in, the channel block it works on, and the part of
  /// the box.
  __device__ static int member() { return (Loaders::index() - loaders) / warpgroup_size; }
  __device__ static int block() { return member() / C.box_parts; }
  __device__ static int part() { return member() % C.box_parts; }
  /// And which of its warpgroup it is.
  __device__ static int thread() { return threadIdx.x % warpgroup_size; }

  /// The threads of a team that fill panels; the others multiply and store.
  struct Loaders {
    __device__ static int index() { return threadIdx.x % team_threads; }
    __device__ static void sync() { ptx::named_sync(1 + multiplying_warpgroups(C) + team(), loaders); }
  };
  /// A warpgroup that multiplies.
  struct Member {
    __device__ static void sync() { ptx::named_sync(1 + team() * members_of(C) + member(), warpgroup_size); }
  };
};

}  // namespace tconv::device
// ---- sizes/panel.cuh
// Sizes of the panel kernel (panel_gemm.cuh): panels, who fills them, and products. Products have 64 rows; of rows that
// the plan does not have they read what lies there, and nothing is stored. A panel is a chunk of x as wgmma reads it:
// slices of 16 bytes of channels, [slice][position].
//
// Mapped x (16 bits, no halo) stays as it lies in memory: [product][64 positions][channel][position], 128 bytes of
// positions a channel, swizzled as the copy engine and wgmma agree on.


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
// ---- sizes/panel_store.cuh
// Sizes of the panel kernel's epilogue. A warp stages eight rows of the product at a time, or its 16, one run for each
// line and each product, or for each row of positions that it covers; where products are flat, for all rows of
// positions. Channels last, a warpgroup stages a few positions of all rows at a time.


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
// ---- sizes/panel_team.cuh
// Sizes of a team of the panel kernel: shared memory, barriers, and sums that tiles share.


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
// ---- panel/shared.cuh
// The shared memory of the panel kernel: weights that are there to stay, then for each team its panels, its rings of
// weights and what its epilogue passes through; then the barriers of all of them.


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
// ---- ptx/load.cuh
// Loads from memory that nothing writes once the kernel before is complete. Not `nc`: that would be read-only from the
// beginning of this one, which may be earlier (launch.cuh).


namespace tconv::device::ptx {

/// `stride` times `bytes` further. The compiler would keep the product, and add 64 bits in two steps.
__device__ inline const unsigned char* further(const unsigned char* address, u32 stride, int bytes) {
  const unsigned char* result;
  asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(result) : "r"(stride), "r"(bytes), "l"(address));
  return result;
}

__device__ inline void load(u16& value, const unsigned char* from) {
  asm("ld.global.u16 %0, [%1];" : "=h"(value) : "l"(from));
}
__device__ inline void load(u32& value, const unsigned char* from) {
  asm("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(from));
}
__device__ inline void load(uint2& value, const unsigned char* from) {
  asm("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "l"(from));
}
__device__ inline void load(uint4& value, const unsigned char* from) {
  asm("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
      : "l"(from));
}

/// Into L2, as it is there: this may come before what writes it is complete.
__device__ inline void prefetch(const unsigned char* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

/// What other blocks of this kernel have written.
__device__ inline float load_fresh(const float* from) {
  float value;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
  return value;
}

}  // namespace tconv::device::ptx
// ---- panel/sums.cuh
// The sums of a warpgroup of the panel kernel, and how tiles that share the depth of a sum add theirs.


namespace tconv::device {

/// What a thread has of them.
template <GemmConfig C>
using PanelSums = float[C.position_tiles][C.panel_columns / 2];

template <GemmConfig C>
__device__ void clear_sums(PanelSums<C>& sum) {
#pragma unroll
  for (int t = 0; t < C.position_tiles; ++t)
#pragma unroll
    for (int i = 0; i < C.panel_columns / 2; ++i) sum[t][i] = 0;
}

/// Sums of tiles that share the chunks of a depth.
template <GemmConfig C, class Tables>
struct PartialSums {
  static constexpr int position_tiles = C.position_tiles, registers = C.panel_columns / 2;
  using Roles = PanelRoles<C>;
  using Member = typename Roles::Member;
  using Sums = PanelSums<C>;

  /// Leaves the sums of a tile for the last one of those that share them; that one gets them all, added. `memory` is
  /// the warpgroup's own.
  __device__ static bool add(const ForwardParams& p, const Tile& tile, Sums& sum, u32* memory) {
    static_assert(C.turned && C.resident_steps == 0 && !C.in_turns, "turned x has memory for them");
    static_assert(C.depth_splits <= chunks_of(C) && all_types_have_steps(),
                  "who has no panel has not waited for zeros");
    constexpr int words = member_sums(C);
    const int place = tile.sum * members_of(C) + Roles::member();
    float* const parts = p.partials + i64(place) * C.depth_splits * words + Roles::thread();
#pragma unroll
    for (int t = 0; t < position_tiles; ++t)
#pragma unroll
      for (int i = 0; i < registers; ++i) parts[tile.split * words + (t * registers + i) * warpgroup_size] = sum[t][i];
    __threadfence();
    Member::sync();
    if (Roles::thread() == 0) *memory = atomicAdd(p.arrivals + place, 1u);
    Member::sync();
    const bool last = *memory + 1 == C.depth_splits;
    Member::sync();
    if (!last) return false;
    __threadfence();
    clear_sums<C>(sum);
#pragma unroll 1
    for (int split = 0; split < C.depth_splits; ++split)
#pragma unroll
      for (int t = 0; t < position_tiles; ++t)
#pragma unroll
        for (int i = 0; i < registers; ++i)
          sum[t][i] += ptx::load_fresh(parts + split * words + (t * registers + i) * warpgroup_size);
    return true;
  }

 private:
  __device__ static constexpr bool all_types_have_steps() {
    for (int type = 0; type < C.types; ++type)
      if (Tables::steps(type) == 0) return false;
    return true;
  }
};

}  // namespace tconv::device
// ---- ptx/cluster.cuh
// Clusters (sm_90): blocks that run at the same time, and reach each other's shared memory.


namespace tconv::device::ptx {

/// All threads of the cluster; what they wrote before, barriers they have initialised too, is seen by all.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// An address of shared memory, as it is in another block.
__device__ inline u32 address_in_block(u32 shared, u32 rank) {
  u32 address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}

/// To another block.
__device__ inline void cluster_store(u32 address, float a, float b) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(a), "f"(b) : "memory");
}
/// Arrives at another block's barrier; who waits there sees what was written before.
__device__ inline void cluster_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Waits for an arrival from another block.
__device__ inline void cluster_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ready;\n"
      "bra again;\n"
      "ready:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace tconv::device::ptx
// ---- ptx/bulk_copy.cuh
// cp.async.bulk (sm_90): contiguous copies by the copy engine, issued by one thread. Addresses and sizes are
// multiples of 16 bytes. Its operands are uniform registers: lanes that issue copies of their own take turns.


namespace tconv::device::ptx {

/// From global to shared memory; completes on a barrier that expects the bytes.
__device__ inline void bulk_load(u32 shared, const void* global, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}

}  // namespace tconv::device::ptx
// ---- team.cuh
// What the warpgroup kernels share: rings of slots, and which tiles a team works on.


namespace tconv::device {

/// A place in a ring of slots: which one is next, and the parity its barriers are at.
template <int Slots>
struct Ring {
  int slot = 0;
  u32 parity = 0;
  __device__ void advance() {
    if (++slot == Slots) slot = 0, parity ^= 1;
  }
};

template <bool First, class A, class B>
struct Select {
  using Type = A;
};
template <class A, class B>
struct Select<false, A, B> {
  using Type = B;
};

/// The tiles of a team: every `stride`th from its own. Where types without taps are filled, so many from one to the
/// next that a team has all types of a box, one after the other: teams have equal work then.
template <GemmConfig C, class TablesOfTypes>
struct TeamSchedule {
  using Tables = TablesOfTypes;
  static constexpr bool resident = C.resident_steps > 0;
  static constexpr int in_turn = C.fills ? C.types : 1;
  static_assert(!C.fills || (!resident && C.depth_splits == 1));
  int block, box, box_stride, boxes;
  __device__ TeamSchedule(const ForwardParams& p, int team) {
    constexpr int blocks = block_sets_of(C);
    if constexpr (resident) {
      block = blockIdx.x % blocks;
      box = blockIdx.x / blocks * C.teams + team, box_stride = gridDim.x / blocks * C.teams;
      boxes = p.tiles / blocks;
    } else {
      block = 0;
      box = (blockIdx.x * C.teams + team) * in_turn, box_stride = gridDim.x * C.teams;
      boxes = p.tiles;
    }
  }
  __device__ bool done() const { return box >= boxes; }
  /// Whether a tile is the first of what is summed at one scale.
  __device__ static constexpr bool begins_tile() { return true; }
  __device__ void advance() {
    if constexpr (in_turn > 1)
      box += box % in_turn < in_turn - 1 ? 1 : (box_stride - 1) * in_turn + 1;
    else
      box += box_stride;
  }
  __device__ Tile tile(const ForwardParams& p) const {
    return resident ? Tile::decode<C>(p, block, box) : Tile::decode<C>(p, box);
  }
  /// Goes on to the next tile that has products, from this one on; false where there is none.
  __device__ bool seek_products(const ForwardParams& p, Tile& found) {
    for (; !done(); advance()) {
      found = tile(p);
      if (Tables::steps(found.type) > 0) return true;
    }
    return false;
  }
  /// The packed weights of a tile.
  __device__ const unsigned char* weights(const ForwardParams& p, const Tile& tile) const {
    const i64 steps = i64(Tables::steps(tile.type)) * octets_of(C);
    const i64 row_block = i64(tile.group) * C.channel_blocks + tile.channel_block;
    return reinterpret_cast<const unsigned char*>(p.weight + Tables::weight_base(tile.type)) +
           row_block * steps * weight_parts(C) * row_step_bytes(C);
  }
};

/// Begins to copy a slab of streamed weights: `count` steps of a chunk, from the packed weights of a tile that has
/// `steps` of them.
template <GemmConfig C>
__device__ void load_slab(u32 shared, const unsigned char* packed, int chunk, int step, int count, int steps,
                          u32 barrier) {
  constexpr int group = C.octet_group, octets = substeps_of(C), bytes = weight_parts(C) * row_step_bytes(C);
  const int first = chunk * octets;
  ptx::barrier_arrive_expect(barrier, count * octets * bytes);
  if constexpr (octets >= group) {
    packed += i64(first * steps + step * group) * bytes;
#pragma unroll
    for (int o = 0; o < octets; o += group)
      ptx::bulk_load(shared + slab_place(C, o, 0) * bytes, packed + i64(o) * steps * bytes, count * group * bytes,
                     barrier);
  } else {
    packed += i64((first / group * steps + step) * group + first % group) * bytes;
    for (int s = 0; s < count; ++s)
      ptx::bulk_load(shared + s * octets * bytes, packed + i64(s) * group * bytes, octets * bytes, barrier);
  }
}

/// Begins to copy the weights that a block keeps. The largest copy an instruction takes is below a megabyte, and
/// shared memory is smaller still.
template <GemmConfig C, class Tables>
__device__ void load_resident_weights(const ForwardParams& p, u32 shared, u32 barrier) {
  const TeamSchedule<C, Tables> schedule(p, 0);
  const Tile tile = Tile::decode<C>(p, schedule.block, 0);
  // Those of neighbouring channel blocks follow one another.
  constexpr int bytes = C.team_blocks * resident_bytes(C);
  ptx::barrier_arrive_expect(barrier, bytes);
  ptx::bulk_load(shared, schedule.weights(p, tile), bytes, barrier);
}

/// Hands a slot over: one lane of each warp says so. That orders what tensor cores have read; what lanes read or wrote
/// themselves takes a __syncwarp() in between.
__device__ inline void release(u32 barrier) {
  if (lane_index() == 0) ptx::barrier_arrive(barrier);
}

}  // namespace tconv::device
// ---- panel/cluster_sums.cuh
// Tiles that share the depth of a sum as blocks of a cluster of two. Each adds half of the rows: a warp gives its sums
// of the other half to the same warp of the other block, where they lie in the memory that rows are staged in until
// they are added. Half of the rows are one of a thread's two, or where these are paired, both of half of the lanes.
//
// Every lane arrives for what it has written or read itself: where the assembler knows that lanes have not parted, it
// leaves __syncwarp() out, and sanitizers do not see what one lane says for all.


namespace tconv::device {

template <GemmConfig C>
struct ClusterSums {
  static_assert(C.depth_splits == 2 && allows_clusters(C) && !C.in_turns);
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  Ring<1> received;
  bool began = false;

  /// Adds the sums of a tile. `memory` is the warp's own.
  __device__ void add(const Tile& tile, PanelSums<C>& sum, unsigned char* memory) {
    const int warp = Roles::member() * (warpgroup_size / warp_size) + Roles::thread() / warp_size;
    const u32 place_of_lane = C.row_pairs ? lane_index() % 16 * 16 : lane_index() * 8;
    const u32 own = ptx::shared_address(memory) + place_of_lane, other = u32(tile.split ^ 1);
    if (began) {  // rows of the tile before were staged there
      ptx::cluster_arrive(ptx::address_in_block(Shared::sums_empty(warp), other));
      ptx::cluster_wait(Shared::sums_empty(warp), received.parity ^ 1);
    }
    began = true;
    const u32 to = ptx::address_in_block(own, other);
    const bool second = tile.split != 0;                       // of the halves is stored here
    const bool stored_here = lane_index() / 16 == tile.split;  // of paired rows, those of this lane
    each_pair(sum, [&](float(&pair)[4], int place) {
      if constexpr (!C.row_pairs) {
        ptx::cluster_store(to + place, second ? pair[0] : pair[2], second ? pair[1] : pair[3]);
      } else if (!stored_here) {
        ptx::cluster_store(to + place, pair[0], pair[1]);
        ptx::cluster_store(to + place + 8, pair[2], pair[3]);
      }
    });
    ptx::cluster_arrive(ptx::address_in_block(Shared::sums_full(warp), other));
    ptx::cluster_wait(Shared::sums_full(warp), received.parity);
    received.advance();
    // Which of the halves is stored is not known to the compiler: both get the sums.
    each_pair(sum, [&](float(&pair)[4], int place) {
      // The first part of the depth comes first, whoever adds.
      if constexpr (C.row_pairs) {
        if (!stored_here) return;
        const float4 given = *reinterpret_cast<const float4*>(memory + place_of_lane + place);
        const float from[4] = {given.x, given.y, given.z, given.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) pair[i] = second ? from[i] + pair[i] : pair[i] + from[i];
      } else {
        const float2 given = *reinterpret_cast<const float2*>(memory + place_of_lane + place);
        pair[0] = pair[2] = second ? given.x + pair[2] : pair[0] + given.x;
        pair[1] = pair[3] = second ? given.y + pair[3] : pair[1] + given.y;
      }
    });
    __syncwarp();
  }

 private:
  /// Calls `visit(sums, place)` for a thread's sums of two columns, first those of the first half of the rows; `place`
  /// is where the memory of a warp has room for those of one half.
  template <class Visit>
  __device__ static void each_pair(PanelSums<C>& sum, const Visit& visit) {
#pragma unroll
    for (int t = 0; t < C.position_tiles; ++t)
#pragma unroll
      for (int n = 0; n < C.panel_columns / 8; ++n)
        visit(reinterpret_cast<float(&)[4]>(sum[t][n * 4]), (t * C.panel_columns / 8 + n) * warp_size * 8);
  }
};

struct NoClusterSums {};
template <GemmConfig C>
using SumsOfCluster = typename Select<C.clustered, ClusterSums<C>, NoClusterSums>::Type;

}  // namespace tconv::device
// ---- ptx/tensor_copy.cuh
// cp.async.bulk.tensor (sm_90): boxes of a tensor that the copy engine finds by a map, issued by one thread.


namespace tconv::device::ptx {

__device__ inline void prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<u64>(&map)) : "memory");
}

/// From global to shared memory; completes on a barrier that expects all bytes of the box. What is outside of the
/// tensor comes as zeros. The position is a multiple of 16 bytes.
__device__ inline void tensor_load(u32 shared, const TensorMap& map, int position, int channel, int group, int image,
                                   u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared),
      "l"(reinterpret_cast<u64>(&map)), "r"(position), "r"(channel), "r"(group), "r"(image), "r"(barrier)
      : "memory");
}

}  // namespace tconv::device::ptx
// ---- tiles/panel_walk.cuh
// The panels of a tile, one after the other, as those who fill them, who bring weights and who multiply all count them:
// one for each chunk of channels. Or one for each chunk and each shift along depth and height: where taps reach far, a
// box's halo is larger than shared memory, and most of it is read by few steps. Then panels whose rows are all outside
// of the image are left out, but for the first of a chunk: whoever waits for a tile's first panel need not know.


namespace tconv::device {

/// Goes from a panel to the next, which may be of the next chunk.
template <GemmConfig C, class Tables, bool ByShift = panels_by_shift(C)>
struct PanelWalk {
  __device__ PanelWalk(const ForwardParams&, const Tile&) {}
  __device__ void advance(int& chunk) { ++chunk; }
  /// The first step of the panel, and the one behind its last, of those of the tile's type.
  __device__ static constexpr int first_step() { return 0; }
  __device__ static constexpr int end_step(int steps) { return steps; }
};

template <GemmConfig C, class Tables>
struct PanelWalk<C, Tables, true> {
  static_assert(C.turned_once && C.images == 1 && !scales(C.math));
  const ForwardParams& p;
  const Tile& tile;
  int step = 0;
  __device__ PanelWalk(const ForwardParams& params, const Tile& of_tile) : p(params), tile(of_tile) {}
  __device__ void advance(int& chunk) {
    do {
      step += C.panel_steps;
      if (step < Tables::steps(tile.type)) continue;
      step = 0, ++chunk;
      return;
    } while (!reads_inputs());
  }
  __device__ int first_step() const { return step; }
  __device__ int end_step(int) const { return step + C.panel_steps; }

  /// The shift of the panel.
  __device__ int depth_shift() const { return Tables::depth_shift(Tables::first_entry(tile.type) + step); }
  __device__ int height_shift() const { return Tables::height_shift(Tables::first_entry(tile.type) + step); }

 private:
  __device__ bool reads_inputs() const {
    const int d = tile.origin.d - depth_shift(), h = tile.origin.h - height_shift();
    return d < p.in.d && d + C.box.d > 0 && h < p.in.h && h + C.box.h > 0;
  }
};

}  // namespace tconv::device
// ---- tiles/panel_slice.cuh
// A slice of a panel: four words of channels at one input, as products read them.


namespace tconv::device {

/// Word `index` of a slice whose channels were loaded each by itself, at one input or at two neighbouring ones: of the
/// first, or of the second.
template <int PerWord, int Inputs, class Load, int Loads>
__device__ inline u32 slice_word(const Load (&v)[Loads], int index, bool second) {
  if constexpr (PerWord == 2) {
    const u32 low = v[2 * index], high = v[2 * index + 1];
    if constexpr (Inputs == 1)
      return low | high << 16;
    else
      return __byte_perm(low, high, second ? 0x7632 : 0x5410);
  } else if constexpr (Inputs == 1) {
    return v[index];
  } else {
    return second ? v[index].y : v[index].x;
  }
}

/// A word whose upper 19 bits are the nearest TF32 number: the tensor cores read no others. Infinities and NaNs stay.
__device__ inline u32 near_tf32(u32 word) {
  return fabsf(__uint_as_float(word)) < __uint_as_float(0x7f800000) ? word + 0x1000 : word;
}

/// TF32 is rounded. In fp32 words are split: their heads go to `to`, what remains to `remainders`, which nothing else
/// uses.
template <Math M>
__device__ void store_slice(uint4* to, uint4* remainders, const uint4& v) {
  if constexpr (M == Math::fp32) {
    uint4 head, rest;
    split_tf32(v.x, head.x, rest.x);
    split_tf32(v.y, head.y, rest.y);
    split_tf32(v.z, head.z, rest.z);
    split_tf32(v.w, head.w, rest.w);
    *to = head, *remainders = rest;
  } else if constexpr (M == Math::tf32) {
    *to = make_uint4(near_tf32(v.x), near_tf32(v.y), near_tf32(v.z), near_tf32(v.w));
  } else {
    *to = v;
  }
}

/// Eight channels of an input, scaled: as halves, or rounded to one half each.
template <Math M>
struct ScaledSlice {
  static constexpr int parts = weight_parts(M);
  uint4 part[parts];

  /// `value` gives the bits of a channel.
  template <class Value>
  __device__ ScaledSlice(float scale, const Value& value) {
    const auto scaled = [&](int channel) { return __uint_as_float(value(channel)) * scale; };
    u32 head[4], rest[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) split_halves(scaled(2 * i), scaled(2 * i + 1), head[i], rest[i]);
    part[0] = make_uint4(head[0], head[1], head[2], head[3]);
    if constexpr (parts == 2) part[1] = make_uint4(rest[0], rest[1], rest[2], rest[3]);
  }
  __device__ void store(uint4* to, uint4* remainders) const {
    *to = part[0];
    if constexpr (parts == 2) *remainders = part[1];
  }
};

/// Exchanges two slices, or not.
template <Math M>
__device__ void exchange_if(bool exchanges, ScaledSlice<M>& a, ScaledSlice<M>& b) {
  const auto one = [&](u32& x, u32& y) {
    const u32 first = exchanges ? y : x;
    y = exchanges ? x : y, x = first;
  };
#pragma unroll
  for (int i = 0; i < ScaledSlice<M>::parts; ++i)
    one(a.part[i].x, b.part[i].x), one(a.part[i].y, b.part[i].y), one(a.part[i].z, b.part[i].z),
        one(a.part[i].w, b.part[i].w);
}

/// A channel of a slice that was loaded as vectors of four.
template <int Loads>
__device__ inline u32 channel_of(const uint4 (&v)[Loads], int channel) {
  const uint4& four = v[channel / 4];
  return channel % 4 == 0 ? four.x : channel % 4 == 1 ? four.y : channel % 4 == 2 ? four.z : four.w;
}

}  // namespace tconv::device
// ---- tiles/x_panel.cuh
// A panel: one chunk of the x tile as wgmma reads it from shared memory.
//
//   [slice of four words][position][4 words], in fp32 first the heads of all words, then their remainders; where they
//   were scaled, the scale, and the largest number that each warp had
//
// A tap is the same panel, started a few positions earlier: one panel serves all taps, and its positions need no
// alignment. A thread loads four words of a position, or of two, from as many channels; they are rounded, split or
// joined on their way. Neighbouring threads have neighbouring positions, in memory and here. Channels last, the
// four words are one load, and neighbouring threads have neighbouring slices.
//
// Where several inputs are one position, each is a phase of its own: a slice holds the first input of all positions,
// then the second of all, and a tap begins in the phase it reads.


namespace tconv::device {

/// What loads from outside the image read.
__device__ const uint4 outside_of_x{};

template <GemmConfig C, class Threads>
struct XPanel {
  using Element = ElementOf<C>;
  static constexpr int per_word = channels_per_word(C), channels = 4 * per_word;  // of a slice
  static constexpr int unit = panel_unit(C), positions = x_inputs(C);
  static constexpr int lanes = panel_lanes(C), groups = panel_loaders(C) / lanes;
  static constexpr int units = panel_units(C, lanes), depth = panel_depth(C, lanes), slices = panel_slices(C);
  static constexpr int phases = C.x_phases;
  static constexpr bool channels_last = C.x_channels_last;
  static_assert(fills_panels(C) && (!channels_last || (C.x_vector == 4 && groups == slices)));

  /// What one load brings: an element of each position of the unit, or a slice of a position.
  using Load = typename WordOf<channels_last ? 16 : unit* int(sizeof(Element))>::Type;
  static constexpr int loads = channels_last ? channels * int(sizeof(Element)) / 16 : channels;  // of a unit and slice
  static constexpr int load_channels = channels / loads;
  struct Buffer {
    Load value[units][depth][loads];
    bool begins_tile;
  };

  __device__ static int lane() { return channels_last ? Threads::index() / groups : Threads::index() % lanes; }
  __device__ static int group() { return channels_last ? Threads::index() % groups : Threads::index() / lanes; }
  /// Whether every thread has a unit or slice of this number.
  __device__ static bool has_unit(int j) {
    return (positions / unit) % lanes == 0 || j < units - 1 || lane() + j * lanes < positions / unit;
  }
  __device__ static bool has_slice(int k) {
    return slices % groups == 0 || k < depth - 1 || k * groups + group() < slices;
  }

  /// Where a thread's units begin, in the first channel of the next chunk that it takes. Inputs outside the image are
  /// read from zeros, whose channels are all the same: no load needs a condition.
  struct Loader {
    const unsigned char* source[units];
    u32 inside, channel_stride;

    __device__ void seek(const ForwardParams& p, const Tile& tile) {
      channel_stride = u32(p.xs.c), inside = 0;
      const Element* const first =
          static_cast<const Element*>(p.x) + tile.n * p.xs.n +
          (i64(tile.group) * C.group_in + (first_chunk(C, tile.split) * slices + group()) * channels) * p.xs.c;
      constexpr Int3 extent = x_extent(C);
      constexpr int row_inputs = C.x_phases * extent.w;
      const Int3 start{tile.origin.d - C.reach.d, tile.origin.h - C.reach.h,
                       C.x_phases * (tile.origin.w - C.reach.w - x_lead(C))};
#pragma unroll
      for (int j = 0; j < units; ++j) {
        const int position = (lane() + j * lanes) * unit;
        const int w = start.w + position % row_inputs, row = position / row_inputs;
        const int slice = row / extent.h, image = slice / extent.d;
        const int h = start.h + row % extent.h, d = start.d + slice % extent.d;
        const bool there = has_unit(j) && unsigned(w) < unsigned(p.in.w) && unsigned(h) < unsigned(p.in.h) &&
                           unsigned(d) < unsigned(p.in.d) && (C.images == 1 || tile.n + image < p.batch);
        const int offset = d * p.xs.d + h * p.xs.h + w * p.xs.w + (C.images == 1 ? 0 : image * int(p.xs.n));
        source[j] = there ? reinterpret_cast<const unsigned char*>(first + offset)
                          : reinterpret_cast<const unsigned char*>(&outside_of_x);
        inside |= u32(there) << j;
      }
    }

    /// From the end of a slice's channels to the beginning of the next slice of the same box.
    __device__ void next_slice(const ForwardParams& p) {
      constexpr int chunks = chunks_of(C) * slices * channels;
      const i64 further = (p.xs.d - i64(chunks) * channel_stride) * i64(sizeof(Element));
#pragma unroll
      for (int j = 0; j < units; ++j)
        if (inside >> j & 1) source[j] += further;
    }

    /// Keeps loads, which may move otherwise, behind what the thread has waited for.
    __device__ void load_from_here() {
#pragma unroll
      for (int j = 0; j < units; ++j) asm volatile("" : "+l"(source[j]));
    }

    /// Loads the next chunk, whose number is `chunk`.
    __device__ void load(Buffer& buffer, int chunk) {
      constexpr bool whole_chunks = C.group_in % (C.chunk_words * per_word) == 0 && slices % groups == 0;
#pragma unroll
      for (int j = 0; j < units; ++j) {
        const u32 stride = inside >> j & 1 ? channel_stride : 0;
#pragma unroll
        for (int k = 0; k < depth; ++k)
#pragma unroll
          for (int i = 0; i < loads; ++i) {
            const int channel = k * groups * channels + i * load_channels;  // from this thread's first of the chunk
            const int number = chunk * slices * channels + group() * channels + channel;
            const bool exists = whole_chunks || (number < C.group_in && has_slice(k));
            if constexpr (!whole_chunks) buffer.value[j][k][i] = Load{};
            if (exists)
              ptx::load(buffer.value[j][k][i], ptx::further(source[j], stride, channel * int(sizeof(Element))));
          }
        source[j] = ptx::further(source[j], stride, slices * channels * int(sizeof(Element)));
      }
    }
  };

  /// The bits of the largest number of a warp's buffers that is finite.
  __device__ static u32 largest_of(const Buffer& buffer) {
    // Four at a time: each waits for the one before it.
    float of_four[4] = {0, 0, 0, 0};
    int index = 0;
    each_number(buffer, [&](float value) {
      float& own = of_four[index++ % 4];
      own = larger(own, value);
    });
    float largest = fmaxf(fmaxf(of_four[0], of_four[1]), fmaxf(of_four[2], of_four[3]));
    if (largest == __uint_as_float(0x7f800000)) {
      largest = 0;
      each_number(buffer, [&](float value) { largest = fmaxf(largest, finite_magnitude(value)); });
    }
    return __reduce_max_sync(0xffffffff, __float_as_uint(largest));
  }

  /// `scale`: of what has one.
  __device__ static void fill(unsigned char* panel, const Buffer& buffer, float scale) {
#pragma unroll
    for (int j = 0; j < units; ++j)
#pragma unroll
      for (int k = 0; k < depth; ++k) {
        if (!has_unit(j) || !has_slice(k)) continue;
        const int first = lane() * unit;
        uint4* const to = reinterpret_cast<uint4*>(panel) + (k * groups + group()) * panel_slice_stride(C) +
                          first / phases + first % phases * x_phase_stride(C) + j * (lanes * unit / phases);
        const Load(&v)[loads] = buffer.value[j][k];
        if constexpr (scales(C.math)) {
          const auto slice = [&](bool second) {
            return ScaledSlice<C.math>(scale, [&](int channel) { return number_of(v, channel, second); });
          };
          const auto store = [&](const ScaledSlice<C.math>& value, int further) {
            value.store(to + further, to + further + slices * panel_slice_stride(C));
          };
          auto first_slice = slice(false);
          if constexpr (unit == 1) {
            store(first_slice, 0);
          } else {
            constexpr int further = phases > 1 ? x_phase_stride(C) : 1;
            auto second_slice = slice(true);
            exchange_if(swaps(), first_slice, second_slice);
            store(first_slice, swaps() ? further : 0);
            store(second_slice, swaps() ? 0 : further);
          }
        } else if constexpr (channels_last) {
          put(to, v[0].x, v[0].y, v[0].z, v[0].w);
        } else if constexpr (unit == 1) {
          put(to, word_of(v, 0, false), word_of(v, 1, false), word_of(v, 2, false), word_of(v, 3, false));
        } else if constexpr (phases > 1) {
          put(to, word_of(v, 0, false), word_of(v, 1, false), word_of(v, 2, false), word_of(v, 3, false));
          put(to + x_phase_stride(C), word_of(v, 0, true), word_of(v, 1, true), word_of(v, 2, true),
              word_of(v, 3, true));
        } else {
          const bool swap = swaps();
          put(to + swap, word_of(v, 0, swap), word_of(v, 1, swap), word_of(v, 2, swap), word_of(v, 3, swap));
          put(to + !swap, word_of(v, 0, !swap), word_of(v, 1, !swap), word_of(v, 2, !swap), word_of(v, 3, !swap));
        }
      }
  }

 private:
  /// Of eight lanes that write pairs of neighbours four begin with the second: so all eight write to different banks.
  __device__ static bool swaps() { return unit == 2 && phases == 1 && lane_index() / 4 % 2 != 0; }

  template <class Visit>
  __device__ static void each_number(const Buffer& buffer, const Visit& visit) {
#pragma unroll
    for (int j = 0; j < units; ++j)
#pragma unroll
      for (int k = 0; k < depth; ++k)
#pragma unroll
        for (int channel = 0; channel < channels; ++channel)
#pragma unroll
          for (int second = 0; second < unit; ++second)
            visit(__uint_as_float(number_of(buffer.value[j][k], channel, second != 0)));
  }

  /// The bits of a channel of 32 bits at the first position of the unit, or at its second.
  __device__ static u32 number_of(const Load (&v)[loads], int channel, bool second) {
    if constexpr (channels_last)
      return channel_of(v, channel);
    else
      return slice_word<1, unit>(v, channel, second);
  }

  /// Word `index` of the slice at the first position of the unit, or at its second.
  __device__ static u32 word_of(const Load (&v)[loads], int index, bool second) {
    return slice_word<per_word, unit>(v, index, second);
  }

  __device__ static void put(uint4* to, u32 a, u32 b, u32 c, u32 d) {
    store_slice<C.math>(to, to + slices * panel_slice_stride(C), make_uint4(a, b, c, d));
  }
};

}  // namespace tconv::device
// ---- panel/fill.cuh
// How panels are filled: by the threads of loading warpgroups, which pass x through registers (tiles/x_panel.cuh), or
// by one thread that copies x: panels that were turned before, or by a tensor map x as it lies.
//
// `Schedule` says which boxes of x come one after the other, `Roles` who loads them, `Shared` where they go.


namespace tconv::device {

template <GemmConfig C, class Roles, class Shared, class Schedule>
struct PanelFill {
  static constexpr int chunks = chunks_of(C), row_bytes = x_extent(C).w * 16;
  static constexpr bool scaled = scales(C.math);
  using Loaders = typename Roles::Loaders;
  using Tables = typename Schedule::Tables;
  using Panel = XPanel<C, Loaders>;

  /// Chunks of x, one after the other and tile after tile.
  struct Chunks {
    const ForwardParams& p;
    Schedule schedule;
    typename Panel::Loader loader;
    int chunk = 0, split = 0;  // of a tile, which shares its chunks with others perhaps

    __device__ explicit Chunks(const ForwardParams& params) : p(params), schedule(params, Roles::team()) { seek(); }
    __device__ void seek() {
      Tile tile;
      if (schedule.seek_products(p, tile)) {
        if constexpr (C.depth_splits > 1) split = tile.split, chunk = first_chunk_of();
        if (schedule.begins_tile())
          loader.seek(p, tile);
        else
          loader.next_slice(p);
      }
    }
    /// Of the tile, or of the one behind it: constants where tiles share no chunks.
    __device__ int first_chunk_of(int further = 0) const {
      return C.depth_splits == 1 ? further * chunks : first_chunk(C, split + further);
    }
    /// Begins to load the next chunk, if there is one.
    __device__ bool load(typename Panel::Buffer& buffer) {
      if (schedule.done()) return false;
      loader.load(buffer, chunk);
      buffer.begins_tile = chunk == first_chunk_of() && schedule.begins_tile();
      if (++chunk == first_chunk_of(1)) {
        chunk = 0;
        schedule.advance();
        seek();
      }
      return true;
    }
  };

  /// Fills panels from one buffer while the other is being loaded, where there are two.
  __device__ static void load_x(const ForwardParams& p, const Shared& shared) {
    Chunks source(p);
    ptx::wait_for_previous();
    source.loader.load_from_here();
    Ring<C.panel_stages> panel;
    u32 scale = 0;
    const auto fill = [&](const typename Panel::Buffer& buffer) {
      unsigned char* const to = shared.panels + panel.slot * panel_bytes(C);
      u32 largest = 0;
      if constexpr (scaled) largest = Panel::largest_of(buffer);
      ptx::barrier_wait(shared.panel_empty(panel.slot), panel.parity ^ 1);
      if constexpr (scaled) {
        if (lane_index() == 0)
          reinterpret_cast<u32*>(to + panel_largest_place(C))[Loaders::index() / warp_size] = largest;
        Loaders::sync();
        largest = largest_of(to);
        if constexpr (C.math == Math::halves)
          scale = scale_for(largest);
        else if (buffer.begins_tile || !has_room(scale, largest))
          scale = coarse_scale_for(largest);  // the chunks of a tile keep theirs as long as it serves
        if (Loaders::index() == 0) *reinterpret_cast<u32*>(to + panel_scale_place(C)) = scale;
      }
      Panel::fill(to, buffer, power_of_two(scale));
      ptx::async_proxy_fence();
      __syncwarp();
      release(shared.panel_full(panel.slot));
      panel.advance();
    };
    typename Panel::Buffer a;
    if constexpr (C.fill_buffers == 1) {
      while (source.load(a)) fill(a);
    } else {
      typename Panel::Buffer b;
      bool more = source.load(a);
      while (more) {
        more = source.load(b);
        fill(a);
        if (!more) break;
        more = source.load(a);
        fill(b);
      }
    }
  }

  /// What the steps of a type read of an x tile: layers along the depth, and of each these rows.
  struct Read {
    int first_layer = x_extent(C).d, end_layer = 0, first_row = x_extent(C).h, end_row = 0;
    __device__ void find(int type) {
      constexpr Int3 extent = x_extent(C);
      const auto take = [&](int offset) {
        const int position = C.x_phases == 1 ? offset : offset % x_phase_stride(C);
        const int layer = position / (extent.w * extent.h), row = position / extent.w % extent.h;
        first_layer = min(first_layer, layer), end_layer = max(end_layer, layer + C.box.d);
        first_row = min(first_row, row), end_row = max(end_row, row + C.box.h);
      };
      for (int entry = Tables::first_entry(type); entry < Tables::first_entry(type) + Tables::steps(type); ++entry) {
        take(Tables::low_offset(entry));
        if constexpr (C.chunk_words < 8) take(Tables::high_offset(entry));  // pairs
      }
    }
  };

  /// The panels of a tile, a shift each: all of a panel is read.
  __device__ static void copy_by_shift(const ForwardParams& p, const Shared& shared, const Tile& tile,
                                       Ring<C.panel_stages>& panel) {
    Read read;
    PanelWalk<C, Tables> walk(p, tile);
    const int end = first_chunk(C, tile.split + 1);
#pragma unroll 1
    for (int chunk = first_chunk(C, tile.split); chunk < end; walk.advance(chunk), panel.advance()) {
      const int d = C.reach.d - walk.depth_shift(), h = C.reach.h - walk.height_shift();
      read.first_layer = d, read.end_layer = d + C.box.d, read.first_row = h, read.end_row = h + C.box.h;
      ptx::barrier_wait(shared.panel_empty(panel.slot), panel.parity ^ 1);
      copy_from_all(p, tile, read, chunk,
                    ptx::shared_address(shared.panels) + panel.slot * panel_bytes(C) - (d * C.box.h + h) * row_bytes,
                    shared.panel_full(panel.slot));
    }
  }

  /// Copies a panel out of x that was turned once for all boxes: of each slice, each input of a position and each layer
  /// the rows that are read, which follow one another. `to` is where its first layer and row would be.
  __device__ static void copy_from_all(const ForwardParams& p, const Tile& tile, const Read& read, int chunk, u32 to,
                                       u32 full) {
    constexpr int slices = weight_parts(C) * panel_slices(C), phases = C.x_phases;
    constexpr int layer_rows = x_extent(C).h;
    const Int3 all = turned_extent(C, p.boxes);
    const i64 image = (i64(tile.n) * p.boxes.w.by + tile.box_w) * C.groups + tile.group;
    const i64 phase_bytes = i64(volume(all)) * 16;
    const i64 first_row = (image * chunks + chunk) * slices * phases * (i64(all.d) * all.h) +
                          (tile.origin.d - C.first_position.d) * all.h + tile.origin.h - C.first_position.h;
    const unsigned char* from = static_cast<const unsigned char*>(p.x) + (first_row + read.first_row) * row_bytes;
    const int bytes = (read.end_row - read.first_row) * row_bytes;
    ptx::barrier_arrive_expect(full, slices * phases * (read.end_layer - read.first_layer) * bytes);
    to += read.first_row * row_bytes;
#pragma unroll 1
    for (int slice = 0; slice < slices; ++slice, to += panel_slice_bytes(C))
#pragma unroll 1
      for (int phase = 0; phase < phases; ++phase, from += phase_bytes)
        for (int d = read.first_layer; d < read.end_layer; ++d)
          ptx::bulk_load(to + phase * x_phase_stride(C) * 16 + d * layer_rows * row_bytes,
                         from + i64(d) * all.h * row_bytes, bytes, full);
  }

  /// Copies panels that were turned before.
  __device__ static void copy_x(const ForwardParams& p, const Shared& shared) {
    ptx::wait_for_previous();
    Ring<C.panel_stages> panel;
    Tile tile;
    for (Schedule schedule(p, Roles::team()); schedule.seek_products(p, tile); schedule.advance()) {
      if constexpr (panels_by_shift(C)) {
        copy_by_shift(p, shared, tile, panel);
        continue;
      }
      const int first = first_chunk(C, tile.split), end = first_chunk(C, tile.split + 1);
      const unsigned char* turned = static_cast<const unsigned char*>(p.x) +
                                    ((i64(tile.box) * C.groups + tile.group) * chunks + first) * panel_bytes(C);
      Read read;
      if constexpr (C.turned_once) read.find(tile.type);
#pragma unroll 1
      for (int chunk = first; chunk < end; ++chunk, turned += panel_bytes(C), panel.advance()) {
        const u32 full = shared.panel_full(panel.slot);
        const u32 to = ptx::shared_address(shared.panels) + panel.slot * panel_bytes(C);
        ptx::barrier_wait(shared.panel_empty(panel.slot), panel.parity ^ 1);
        if constexpr (C.turned_once) {
          copy_from_all(p, tile, read, chunk, to, full);
        } else {
          ptx::barrier_arrive_expect(full, panel_bytes(C));
          ptx::bulk_load(to, turned, panel_bytes(C), full);
        }
      }
    }
  }

  /// Copies x as it lies. What is outside of the image, of the group and of the batch comes as zeros.
  __device__ static void copy_mapped_x(const MappedParams& p, const Shared& shared) {
    ptx::prefetch(p.x_map);
    ptx::wait_for_previous();
    Ring<C.panel_stages> panel;
    Tile tile;
    for (Schedule schedule(p, Roles::team()); schedule.seek_products(p, tile); schedule.advance()) {
      const int first = first_chunk(C, tile.split), end = first_chunk(C, tile.split + 1);
#pragma unroll 1
      for (int chunk = first; chunk < end; ++chunk, panel.advance()) {
        const u32 full = shared.panel_full(panel.slot);
        u32 to = ptx::shared_address(shared.panels) + panel.slot * panel_bytes(C);
        ptx::barrier_wait(shared.panel_empty(panel.slot), panel.parity ^ 1);
        ptx::barrier_arrive_expect(full, panel_bytes(C));
#pragma unroll
        for (int product = 0; product < C.position_tiles; ++product)
#pragma unroll
          for (int copy = 0; copy < mapped_copies(C); ++copy, to += mapped_copy_bytes(C)) {
            const MappedPlace at(p, tile, product, copy * mapped_positions);
            ptx::tensor_load(to, p.x_map, at.position, chunk * mapped_channels(C), tile.group, at.image, full);
          }
      }
    }
  }

 private:
  /// Where a copy of mapped x begins: the position counts all of an image.
  struct MappedPlace {
    int position, image;
    __device__ MappedPlace(const ForwardParams& p, const Tile& tile, int product, int column)
        : position((tile.origin.d * p.in.h + tile.origin.h) * p.in.w + tile.origin.w), image(tile.n) {
      if constexpr (C.panel_flat) {
        const int of_box = product * C.panel_columns + column, images = C.images > 1 ? of_box / volume(C.box) : 0;
        image += images, position += of_box - images * volume(C.box);
      } else {
        const int row = product / panels_per_row(C) * C.product_rows;
        position +=
            (row / C.box.h * p.in.h + row % C.box.h) * p.in.w + product % panels_per_row(C) * C.panel_columns + column;
      }
    }
  };

  /// The bits of the largest number of a panel.
  __device__ static u32 largest_of(const unsigned char* panel) {
    u32 largest = 0;
#pragma unroll
    for (int i = 0; i < C.loaders; ++i) {
      const uint4 of_warp = reinterpret_cast<const uint4*>(panel + panel_largest_place(C))[i];
      largest = max(largest, max(max(of_warp.x, of_warp.y), max(of_warp.z, of_warp.w)));
    }
    return largest;
  }
};

}  // namespace tconv::device
// ---- panel/weights.cuh
// The weights of the panel kernel, in the order its products take them: there to stay, streamed by the threads that
// multiply, or where x is copied, by a loading thread.
//
// Of each kind, `next` is the slab whose products are next, and `refill` says that the products of a slab are complete.


namespace tconv::device {

/// The slabs of weights of a channel block. All threads keep count, one copies; where parts of the box share them, one
/// of the first part. It fills a slot one slab later then, so that it need not wait for the other part.
template <GemmConfig C, class Tables>
struct StreamedWeights {
  static constexpr int group_steps = C.steps_per_slab;
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  const ForwardParams& p;
  const Shared& shared;
  TeamSchedule<C, Tables> schedule;
  const unsigned char* packed = nullptr;  // of the tile
  int steps = 0, chunk = 0, step = 0;     // of the next slab
  int split = 0;                          // of the tile
  Ring<C.stages> next;
  Ring<C.stages> before;  // the one used last, where that is still to be filled again
  bool waits = false;

  __device__ StreamedWeights(const ForwardParams& params, const Shared& s)
      : p(params), shared(s), schedule(params, Roles::team()) {
    seek();
#pragma unroll 1
    for (int slot = 0; slot < C.stages; ++slot)
      if (Roles::part() == 0) copy(slot);
  }
  __device__ void seek() {
    Tile tile;
    if (!schedule.seek_products(p, tile)) return;
    tile.channel_block += Roles::block();
    steps = Tables::steps(tile.type), packed = schedule.weights(p, tile);
    if constexpr (C.depth_splits > 1) split = tile.split, chunk = first_chunk_of();
  }
  /// Of the tile, or of the one behind it: constants where tiles share no chunks.
  __device__ int first_chunk_of(int further = 0) const {
    return C.depth_splits == 1 ? further * chunks_of(C) : first_chunk(C, split + further);
  }
  __device__ void copy(int slot) {
    if (schedule.done()) return;
    if (Roles::thread() == 0)
      load_slab<C>(shared.weights_of(Roles::block()) + slot * row_slab_bytes(C), packed, chunk, step, group_steps,
                   steps, shared.weights_full(Roles::block(), slot));
    step += group_steps;
    if (step == steps) {
      step = 0;
      if (++chunk == first_chunk_of(1)) {
        chunk = 0;
        schedule.advance();
        seek();
      }
    }
  }
  /// Fills a slot again whose products are complete, as far as this warp knows.
  __device__ void refill(const Ring<C.stages>& used) {
    release(shared.weights_empty(Roles::block(), used.slot));
    if constexpr (C.box_parts == 1) {
      fill(used);
    } else if (Roles::part() == 0) {
      if (waits) fill(before);
      before = used, waits = true;
    }
  }
  __device__ void fill(const Ring<C.stages>& used) {
    if (Roles::thread() == 0) ptx::barrier_wait(shared.weights_empty(Roles::block(), used.slot), used.parity);
    copy(used.slot);
  }
};

/// Of weights that are there to stay.
template <GemmConfig C>
struct ResidentWeights {
  Ring<1> next;
  __device__ ResidentWeights(const ForwardParams&, const PanelShared<C>&) {
    ptx::barrier_wait(PanelShared<C>::weights_resident(), 0);
  }
  __device__ void refill(const Ring<1>&) {}
};

/// Of weights that loading threads see to.
template <GemmConfig C, class Tables>
struct CopiedWeights {
  static constexpr int group_steps = C.steps_per_slab;
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  const Shared& shared;
  Ring<C.stages> next;
  __device__ CopiedWeights(const ForwardParams&, const Shared& s) : shared(s) {}
  __device__ void refill(const Ring<C.stages>& used) { release(shared.weights_empty(Roles::block(), used.slot)); }

  /// What the loading thread does for a channel block.
  __device__ static void copy(const ForwardParams& p, const Shared& shared, int block) {
    Ring<C.stages> ring;
    Tile tile;
    for (TeamSchedule<C, Tables> schedule(p, Roles::team()); schedule.seek_products(p, tile); schedule.advance()) {
      tile.channel_block += block;
      const unsigned char* const packed = schedule.weights(p, tile);
      const int steps = Tables::steps(tile.type);
      const int first = first_chunk(C, tile.split), end = first_chunk(C, tile.split + 1);
      PanelWalk<C, Tables> walk(p, tile);
#pragma unroll 1
      for (int chunk = first; chunk < end; walk.advance(chunk))
#pragma unroll 1
        for (int step = walk.first_step(); step < walk.end_step(steps); step += group_steps, ring.advance()) {
          ptx::barrier_wait(shared.weights_empty(block, ring.slot), ring.parity ^ 1);
          load_slab<C>(shared.weights_of(block) + ring.slot * row_slab_bytes(C), packed, chunk, step, group_steps,
                       steps, shared.weights_full(block, ring.slot));
        }
    }
  }
};

template <GemmConfig C, class Tables>
using PanelWeights =
    typename Select<(C.resident_steps > 0), ResidentWeights<C>,
                    typename Select<copies_x(C), CopiedWeights<C, Tables>, StreamedWeights<C, Tables>>::Type>::Type;

}  // namespace tconv::device
// ---- ptx/wgmma.cuh
// wgmma (sm_90a): products of a warpgroup, 64 x N; the first operand is in registers or in shared memory, the
// second in shared memory.
//
// The instruction itself is written by codegen.cpp for the N of the layer. The operand in registers lies as
// that of mma.sync does, warp by warp: warp w has rows 16w to 16w + 15. So do the sums: d[4n…4n + 3] is a
// warp's 16 x 8 tile of columns 8n to 8n + 7.


namespace tconv::device::ptx {

/// Describes an operand of N rows by eight words at `address`: [row / 8][word / 4][row % 8][word % 4], without
/// swizzle, so that each 8 x 16-byte matrix the tensor core reads is contiguous.
__device__ inline u64 wgmma_operand(u32 address) {
  constexpr u64 word_stride = u64(128 / 16) << 16, row_stride = u64(256 / 16) << 32;
  // All lanes have the same address; saying so lets it live in a uniform register.
  const u32 uniform = __shfl_sync(0xffffffff, address, 0);
  return u64((uniform & 0x3ffff) >> 4) | word_stride | row_stride;
}

/// Describes an operand of N positions by eight words, the first of them at `address`: slices of four words lie
/// `slice_bytes` apart, and in a slice a position follows its neighbour. So it may start at any position.
__device__ inline u64 wgmma_panel(u32 address, u32 slice_bytes) {
  constexpr u64 position_stride = u64(128 / 16) << 32;
  const u32 uniform = __shfl_sync(0xffffffff, address, 0);
  return u64((uniform & 0x3ffff) >> 4) | u64(slice_bytes / 16) << 16 | position_stride;
}

/// Describes an operand of N positions by 16 channels of 16 bits, positions as its major dimension: 64 of them of a
/// channel are 128 bytes, swizzled, channels follow one another, and the next 64 positions lie `copy_bytes` further.
__device__ inline u64 wgmma_mapped(u32 address, u32 copy_bytes) {
  constexpr u64 swizzled = u64(1) << 62, eight_channels = u64(1024 / 16) << 32;
  const u32 uniform = __shfl_sync(0xffffffff, address, 0);
  return u64((uniform & 0x3ffff) >> 4) | u64(copy_bytes / 16) << 16 | eight_channels | swizzled;
}

/// Orders register and shared-memory accesses before the products that follow.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until all but the newest `Pending` groups of products are complete.
template <int Pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

template <int Registers>
__device__ inline void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ inline void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Sums of products that were waited for: to the compiler they are written here.
template <int Count>
__device__ inline void wgmma_sums(float (&sums)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

}  // namespace tconv::device::ptx
// ---- panel/operands.cuh
// The operands of the panel kernel's products: descriptors of weights and of x in shared memory, and where the steps of
// a tile find them. Steps are taken in groups whose products are issued together, a slab of weights each.


namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelOperands {
  static constexpr int group_steps = C.steps_per_slab;
  static constexpr int step_bytes = weight_parts(C) * row_step_bytes(C);
  static constexpr bool resident = C.resident_steps > 0, paired = C.chunk_words < 8;
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  using Weights = PanelWeights<C, Tables>;

  /// The descriptor of an operand, so many bytes further: a constant away, since a product waits for each value
  /// that has to be made uniform first.
  __device__ static u64 further(u64 operand, int bytes) { return operand + u64(bytes / 16); }
  /// The same, for what is no constant; and made uniform. Or where a step reads a panel.
  __device__ static u64 uniform_further(u64 operand, int bytes, u32 place = 0) {
    const u32 low = u32(operand) + u32(bytes) / 16 + place;  // the upper half is a constant, and stays one
    return (operand & 0xffffffff00000000) | __shfl_sync(0xffffffff, low, 0);
  }

  /// Descriptors of what a warpgroup multiplies, in the first slots: everything else is a few additions away from them.
  struct First {
    u64 weights, x;
    __device__ explicit First(const Shared& shared)
        : weights(ptx::wgmma_operand(resident ? shared.resident_weights + Roles::block() * resident_bytes(C)
                                              : shared.weights_of(Roles::block()))) {
      if constexpr (C.mapped) {
        static_assert(C.box_parts == 1);
        x = ptx::wgmma_mapped(ptx::shared_address(shared.panels), mapped_copy_bytes(C));
        return;
      }
      static_assert(C.box_parts == 1 || panel_part_stride(C) >= 0);
      const int of_part = C.box_parts == 1 ? 0 : Roles::part() * panel_part_stride(C) * 16;
      x = ptx::wgmma_panel(ptx::shared_address(shared.panels) + of_part, paired ? 0 : panel_slice_bytes(C));
    }
  };

  // ---- Steps -----------------------------------------------------------------------------------------

  /// Whether every type has its steps in one group: where they read is known for a whole tile then.
  __device__ static constexpr bool one_group_a_chunk() {
    for (int type = 0; type < C.types; ++type)
      if (Tables::steps(type) != group_steps) return false;
    return true;
  }
  /// Calls `group(step)` for each group of a tile's steps that reads the same panel.
  template <class Walk, class Group>
  __device__ static void each_group(const Walk& walk, int steps, const Group& group) {
    if constexpr (one_group_a_chunk()) {
      group(0);
    } else {
#pragma unroll 1
      for (int step = walk.first_step(); step < walk.end_step(steps); step += group_steps) group(step);
    }
  }
  /// Where a step reads a panel, as what is added to the descriptor of its first position: so many positions. Of a pair
  /// of steps the slice is the same, and the second half of an octet is the slice at the other step's shift.
  __device__ static constexpr u32 place_of(int entry) {
    const int low = Tables::low_offset(entry);
    return u32(low) | (paired ? u32(Tables::high_offset(entry) - low) << 16 : 0);
  }
  /// Where those of a group do.
  struct Offsets {
    u32 of_step[group_steps];
    __device__ explicit Offsets(int entry) {
#pragma unroll
      for (int s = 0; s < group_steps; ++s) of_step[s] = place_of(entry + s);
    }
  };

  // ---- A group of steps ------------------------------------------------------------------------------

  /// Where the weights of a group are, from those that are there to stay or from the first slot.
  __device__ static int slab_place_of(const Weights& weights, int chunk, int step) {
    if constexpr (resident)
      return (resident_place(C, chunk) + slab_place(C, 0, step)) * step_bytes;
    else
      return weights.next.slot * row_slab_bytes(C);
  }
  /// The weights of an octet and a step of a group.
  __device__ static constexpr int weights_at(int octet, int step) { return slab_place(C, octet, step) * step_bytes; }

  /// The operand of x for an octet and a product, from the group's first.
  __device__ static constexpr int x_at(int octet, int product) {
    if (C.mapped) return octet * 16 * mapped_positions * 2 + product * mapped_product_bytes(C);
    return octet * 2 * panel_slice_bytes(C) + panel_start(C, product) * 16;
  }

  /// The first operands of a group. Made before they are waited for.
  struct Group {
    u64 weights, x[group_steps];
    __device__ Group(const First& first, int slab, int slot, const Offsets& offsets)
        : weights(uniform_further(first.weights, slab)) {
      if constexpr (C.types == 1 && one_group_a_chunk()) {  // all offsets are constants
        const u64 panel = uniform_further(first.x, slot * panel_bytes(C));
#pragma unroll
        for (int s = 0; s < group_steps; ++s) x[s] = panel + place_of(s);
      } else {
#pragma unroll
        for (int s = 0; s < group_steps; ++s)
          x[s] = uniform_further(first.x, slot * panel_bytes(C), offsets.of_step[s]);
      }
    }
  };
};

}  // namespace tconv::device
// ---- epilogue/row_output.cuh
// What becomes of the sums of a row: scales are undone, and the bias is added.


namespace tconv::device {

template <GemmConfig C>
struct RowOutput {
  static constexpr bool scaled = C.math == Math::half;  // others were scaled back when they were added
  float bias = 0, factor = 1;

  __device__ RowOutput() {}
  /// Of an output channel; -1: there is none. The scale of its weights is kept until that of x is known.
  __device__ RowOutput(const ForwardParams& p, int channel) {
    if (channel < 0) return;
    if (p.bias) bias = load_as_accumulator(static_cast<const ElementOf<C>*>(p.bias)[channel]);
    if constexpr (scaled) factor = p.scales[channel];
  }
  __device__ float operator()(float sum) const { return scaled ? fmaf(sum, factor, bias) : sum + bias; }
};

}  // namespace tconv::device
// ---- panel/scaled_sums.cuh
// Scales of panels (mma/scale.cuh), and of the sums of products that were scaled and not split.


namespace tconv::device {

template <GemmConfig C>
struct PanelScaledSums {
  static constexpr int position_tiles = C.position_tiles, registers = C.panel_columns / 2;
  using Sums = PanelSums<C>;

  /// The scale of a panel; and of turned x, whether all of the panel is finite.
  __device__ static uint2 scale_of(const PanelShared<C>& shared, const Ring<C.panel_stages>& panel) {
    return *reinterpret_cast<const uint2*>(shared.panels + panel.slot * panel_bytes(C) + panel_scale_place(C));
  }

  /// Brings sums to the scale of the panel that is added next. False if it is not to be added: nothing of it would be
  /// left beside the largest sums, which would not remain finite at its scale. (Of x that is not turned before, scales
  /// of a tile never grow.)
  __device__ static bool adopt(const uint2& of_panel, u32& scale, Sums& sum) {
    if (C.turned && (of_panel.x == any_scale || scale == any_scale)) {
      if (scale == any_scale) scale = of_panel.x;
      return true;
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int t = 0; t < position_tiles; ++t) ptx::wgmma_sums(sum[t]);
    const bool adds = !C.turned || int(of_panel.x) - int(scale) <= most_growth;
    float change = change_of_scale(scale, of_panel.x);
    if (!adds) change = of_panel.y ? 1 : __uint_as_float(0x7fffffff);  // what is not finite is not lost
#pragma unroll
    for (int t = 0; t < position_tiles; ++t)
#pragma unroll
      for (int r = 0; r < registers; ++r) sum[t][r] *= change;
    if (adds) scale = of_panel.x;
    return adds;
  }

  /// Undoes the scales of sums, or leaves it to the store. Of each of the thread's two rows.
  __device__ static void unscale(u32 scale, Sums& sum, RowOutput<C> (&outputs)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const UnscaleSum whole(scale, outputs[half].factor);
      const float now = C.depth_splits > 1 ? whole.factor * whole.rest : whole.rest;
      outputs[half].factor = C.depth_splits > 1 ? 1 : whole.factor;
      if (__all_sync(0xffffffff, now == 1)) continue;
#pragma unroll
      for (int t = 0; t < position_tiles; ++t)
#pragma unroll
        for (int r = 0; r < registers; ++r)
          if (r / 2 % 2 == half) sum[t][r] *= now;
    }
  }
};

}  // namespace tconv::device
// ---- panel/turns.cuh
// Warpgroups that multiply one at a time. Side by side they would all multiply at half the speed, then all store,
// and the tensor cores would wait. They have equally many tiles, or the first ones have one more.


namespace tconv::device {

template <GemmConfig C>
struct PanelTurns {
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  int index = Roles::team() * members_of(C) + Roles::member();
  u32 parity = index == 0 ? 1 : 0;  // nobody is before the first one at first

  __device__ void wait() {
    if constexpr (C.in_turns) ptx::barrier_wait(Shared::turn(index), parity), parity ^= 1;
  }
  /// All products of the tile are issued.
  __device__ void pass() const {
    if constexpr (C.in_turns) release(Shared::turn(index + 1 == multiplying_warpgroups(C) ? 0 : index + 1));
  }
};

}  // namespace tconv::device
// ---- panel/products.cuh
// Products of the panel kernel where a number is one operand: TF32, 16 bits, and fp32 numbers that are scaled and
// rounded to fp16. All products of a tile are summed by the tensor core.


namespace tconv::device {

template <GemmConfig C, class Tables, class Wgmma>
struct PanelProducts {
  static constexpr int octets = substeps_of(C), position_tiles = C.position_tiles, group_steps = C.steps_per_slab;
  static constexpr bool scaled = scales(C.math);
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  using Sums = PanelSums<C>;
  using Operands = PanelOperands<C, Tables>;
  using Weights = PanelWeights<C, Tables>;
  using ScaledSums = PanelScaledSums<C>;

  __device__ static void multiply(Sums& sum, RowOutput<C> (&outputs)[2], PanelWalk<C, Tables> walk, const Tile& tile,
                                  const Shared& shared, const typename Operands::First& first, Weights& weights,
                                  Ring<C.panel_stages>& panel, const PanelTurns<C>& turns) {
    using Offsets = typename Operands::Offsets;
    const int steps = Tables::steps(tile.type);
    const int entry = Tables::first_entry(tile.type);
    const int first_of_tile = first_chunk(C, tile.split), end_of_tile = first_chunk(C, tile.split + 1);
    // Where all products are one group, the first one overwrites the sums: zeros would be written inside the
    // group.
    constexpr bool one_group = chunks_of(C) == 1 && C.types == 1 && Operands::one_group_a_chunk();
    if constexpr (!one_group) clear_sums<C>(sum);
    if (steps == 0) return turns.pass();
    bool began = false, released = false;
    auto used_weights = weights.next;
    auto used_panel = panel;
    u32 scale = 0;  // of sums
    // The products so far are complete: what the last of them read may be overwritten.
    const auto hand_back = [&] {
      if (!began) return;
      weights.refill(used_weights);
      if (!released) release(shared.panel_empty(used_panel.slot));
      began = released = false;
    };
    const Offsets of_tile(entry);
#pragma unroll 1
    for (int chunk = first_of_tile; chunk < end_of_tile; walk.advance(chunk), panel.advance()) {
      // Where there are two slots and the next panel is not there yet, the one before it is handed back first: it is
      // what the loading threads wait for.
      if constexpr (C.panel_stages == 2) {
        if (began && !is_full(shared, panel)) {
          ptx::wgmma_wait<0>();
          release(shared.panel_empty(used_panel.slot));
          released = true;
        }
      }
      ptx::barrier_wait(shared.panel_full(panel.slot), panel.parity);
      if constexpr (scaled) {
        const uint2 of_panel = ScaledSums::scale_of(shared, panel);
        if (chunk == first_of_tile) {
          scale = of_panel.x;
        } else if (__shfl_sync(0xffffffff, of_panel.x, 0) != scale && !ScaledSums::adopt(of_panel, scale, sum)) {
          hand_back();
          skip(walk, steps, shared, weights);
          release(shared.panel_empty(panel.slot));
          continue;
        }
        __syncwarp();  // all lanes have read the scale before one of them hands the panel back
      }
      Operands::each_group(walk, steps, [&](int step) {
        const typename Operands::Group operands(first, Operands::slab_place_of(weights, chunk, step), panel.slot,
                                                Operands::one_group_a_chunk() ? of_tile : Offsets(entry + step));
        if constexpr (!Operands::resident)
          ptx::barrier_wait(shared.weights_full(Roles::block(), weights.next.slot), weights.next.parity);
        ptx::wgmma_fence();
#pragma unroll
        for (int s = 0; s < group_steps; ++s) {
          const u64 w = operands.weights, x = operands.x[s];
#pragma unroll
          for (int o = 0; o < octets; ++o)
#pragma unroll
            for (int t = 0; t < position_tiles; ++t)
              Wgmma::multiply(sum[t], Operands::further(w, Operands::weights_at(o, s)),
                              Operands::further(x, Operands::x_at(o, t)), !one_group || s + o > 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        // The products before these are complete: what they read may be overwritten.
        if (began) {
          weights.refill(used_weights);
          if (step == walk.first_step() && !released) release(shared.panel_empty(used_panel.slot));
          released = false;
        }
        used_weights = weights.next;
        began = true;
        weights.next.advance();
      });
      used_panel = panel;
    }
    turns.pass();
    ptx::wgmma_wait<0>();
    // Nothing is read of the sums before this.
#pragma unroll
    for (int t = 0; t < position_tiles; ++t) ptx::wgmma_sums(sum[t]);
    hand_back();
    if constexpr (scaled) ScaledSums::unscale(scale, sum, outputs);
  }

 private:
  /// Whether a panel is there already; the same for all lanes of a warp.
  __device__ static bool is_full(const Shared& shared, const Ring<C.panel_stages>& panel) {
    const bool full = ptx::barrier_test(shared.panel_full(panel.slot), panel.parity);
    return __shfl_sync(0xffffffff, u32(full), 0) != 0;
  }

  /// The weights of a chunk that is not multiplied.
  __device__ static void skip(const PanelWalk<C, Tables>& walk, int steps, const Shared& shared, Weights& weights) {
    Operands::each_group(walk, steps, [&](int) {
      if constexpr (!Operands::resident)
        ptx::barrier_wait(shared.weights_full(Roles::block(), weights.next.slot), weights.next.parity);
      weights.refill(weights.next);
      weights.next.advance();
    });
  }
};

}  // namespace tconv::device
// ---- epilogue/row_place.cuh
// Rows of the product as outputs.


namespace tconv::device {

/// The phase along the width that a row of a line has; -1: it is padding.
template <GemmConfig C>
__device__ int phase_of_slot(int slot) {
  if (C.width_slots > C.width_phases && slot >= C.width_phases) return -1;
  int phase = slot;
  if constexpr (C.width_phases < C.stride.w) {
#pragma unroll
    for (int i = 0; i < C.width_phases; ++i)
      if (slot == i) phase = phase_with_taps(C, i);
  }
  return phase;
}

/// A row of a wide block as a line and the phase of an output along the width.
template <GemmConfig C>
struct RowPlace {
  int line, phase;
  __device__ explicit RowPlace(int place) {
    constexpr int slots = C.width_slots;
    const int row = C.row_pairs ? row_at_place(place) : place;
    if constexpr (C.channel_rows) {
      constexpr int channels = C.channels_per_block;
      line = row / (channels * slots) * channels + row % channels;
      phase = phase_of_slot<C>(row / channels % slots);
    } else {
      line = row / slots, phase = phase_of_slot<C>(row % slots);
    }
  }
};

/// A line of a wide block: its channel, and its phases along depth and height.
template <GemmConfig C, class Tables>
struct BlockLine {
  int channel, phase_d, phase_h;
  bool exists;
  __device__ BlockLine(const Tile& tile, int index) {
    const u32 entry = index < lines_of_block(C) ? Tables::line(tile.type, index) : 0xffffffff;
    const int local = int(entry & 0xffff) + tile.channel_block * C.channels_per_block;
    channel = tile.group * C.group_out + local;
    constexpr Int3 first = first_phase(C);
    phase_d = first.d + int(entry >> 16 & 0xff), phase_h = first.h + int(entry >> 24);
    exists = entry != 0xffffffff && local < C.group_out;
  }
};

}  // namespace tconv::device
// ---- ptx/store.cuh
// Stores to memory that the kernel does not read.


namespace tconv::device::ptx {

/// 16 bytes to global memory. Where an address has been through shuffles the compiler does not know that it is global,
/// and would keep loads from shared memory behind the store.
__device__ inline void store(void* at, const uint4& value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(at)), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w));
}
/// Fewer of them.
__device__ inline void store(void* at, const uint2& value) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(at)), "r"(value.x), "r"(value.y));
}
__device__ inline void store(void* at, u32 value) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "r"(value));
}
__device__ inline void store(void* at, u16 value) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "h"(value));
}
/// One element.
template <class Element>
__device__ inline void store(Element* at, const Element& value) {
  if constexpr (sizeof(Element) == 4)
    asm volatile("st.global.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "f"(value));
  else
    asm volatile("st.global.u16 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "h"(value.bits));
}

}  // namespace tconv::device::ptx
// ---- epilogue/panel_channel_store.cuh
// The epilogue of the panel kernel where channels are the fastest index of rows: channels-last outputs.
//
// A warp has 16 rows of the product, and a position's channels are rows of all four. They meet in shared memory,
// [position][row], a few positions at a time, and leave 16 bytes a lane, or fewer where channels are not aligned for
// it: those of a position are side by side in memory, and whole lines where they fill them. There are two buffers, so
// that one is staged while the other is still being read.
//
// Outputs of channels first are stored so, too, where channels are neighbouring outputs along the width
// (ChannelPhases).


namespace tconv::device {

/// `Member` is the warpgroup that stores.
template <GemmConfig C, class Tables, class Member>
struct PanelChannelStore {
  using Element = ElementOf<C>;
  static constexpr int columns = C.panel_columns, position_tiles = C.position_tiles;
  static constexpr int vector = channel_vector(C), pitch = staged_pitch(C), part = staged_columns(C);
  static constexpr bool row_by_row = !C.panel_flat && C.product_rows == 1;  // a product is positions of one row
  /// Outputs along the width from a position to the next.
  static constexpr int apart = C.stride.w * C.channel_phases.count;
  using Sums = float[position_tiles][columns / 2];
  using Vector = typename WordOf<vector* int(sizeof(Element))>::Type;

  /// A position of the tile: how far its outputs are from those of the box's first one.
  struct Place {
    bool exists;
    int image, d, h, w;  // d, h and w in outputs
    i64 offset;

    __device__ Place(const ForwardParams& p, int product, int column) {
      if constexpr (C.panel_flat) {
        constexpr Int3 extent = x_extent(C);
        constexpr int beside = rows_beside(C);
        const int position = product * columns + column, row = position / extent.w, rows = row / beside;
        w = position % extent.w, h = rows % extent.h;
        d = rows / extent.h % extent.d, image = rows / extent.h / extent.d * beside + row % beside;
        exists = w < C.box.w && h < C.box.h && d < C.box.d && image < C.images;
      } else {
        const int own_row = C.product_rows > 1 ? column / x_extent(C).w : 0;
        const int row = product / panels_per_row(C) * C.product_rows + own_row;
        w = product % panels_per_row(C) * columns + column - own_row * x_extent(C).w;
        h = C.box.d == 1 ? row : row % C.box.h, d = C.box.d == 1 ? 0 : row / C.box.h, image = 0;
        exists = C.product_rows == 1 || (w < C.box.w && own_row < C.product_rows);
      }
      d *= C.stride.d, h *= C.stride.h, w *= apart;
      offset = i64(d) * p.ys.d + i64(h) * p.ys.h + w * p.ys.w;
    }
  };

  /// The outputs of a row, and of those that follow in its vector.
  struct Row {
    Element* at;  // at the box's first position, outside the tensor perhaps
    int channel, od, oh, ow, phase;
    bool exists;

    __device__ Row(const ForwardParams& p, const Tile& tile, int index) {
      const RowPlace<C> place(index);
      const BlockLine<C, Tables> line(tile, place.line);
      channel = layer_channel(C, line.channel), exists = line.exists, phase = place.phase;
      od = tile.origin.d * C.stride.d + line.phase_d - C.padding.d;
      oh = tile.origin.h * C.stride.h + line.phase_h - C.padding.h;
      ow = (tile.origin.w * C.stride.w + phase - C.padding.w) * C.channel_phases.count +
           phase_of_channel(C, line.channel) - C.channel_phases.lead;
      at = static_cast<Element*>(p.y) + tile.n * p.ys.n + channel * p.ys.c + i64(od) * p.ys.d + i64(oh) * p.ys.h +
           i64(ow) * p.ys.w;
    }

    /// Of it, or of one that follows in its vector.
    __device__ float bias(const ForwardParams& p, int further) const {
      if (!p.bias || !exists) return 0;
      if constexpr (C.channel_phases.count > 1) further = 0;  // outputs of the same channel
      return load_as_accumulator(static_cast<const Element*>(p.bias)[channel + further]);
    }
  };

  /// An output of a row, and whether it exists.
  struct Output {
    Element* at;
    int w;        // where it is along the width,
    bool inside;  // and that it exists along the other dimensions
    __device__ Output(const ForwardParams& p, const Tile& tile, const Row& row, const Place& place)
        : at(row.at + (C.images == 1 ? 0 : place.image * p.ys.n) + place.offset),
          w(row.ow + place.w),
          inside(row.exists && place.exists && unsigned(row.od + place.d) < unsigned(p.out.d) &&
                 unsigned(row.oh + place.h) < unsigned(p.out.h) && (C.images == 1 || tile.n + place.image < p.batch)) {}
    __device__ bool exists(const ForwardParams& p) const { return inside && unsigned(w) < unsigned(p.out.w); }
    /// The one so many further along the width.
    __device__ Output further(const ForwardParams& p, int outputs) const {
      Output result = *this;
      result.at += i64(outputs) * p.ys.w, result.w += outputs;
      return result;
    }
  };

  /// Of a thread's two rows.
  struct Outputs {
    RowOutput<C> of_half[2];
    __device__ Outputs(const ForwardParams& p, const Tile& tile)
        : of_half{RowOutput<C>(p, channel_of_half(tile, 0)), RowOutput<C>(p, channel_of_half(tile, 1))} {}
  };

  /// The layer's output channel of one of them; -1: it has none.
  __device__ static int channel_of_half(const Tile& tile, int half) {
    const BlockLine<C, Tables> line(tile, RowPlace<C>(row_of(half)).line);
    return line.exists ? layer_channel(C, line.channel) : -1;
  }

  /// Stores a tile; `memory` is the part of this warp of what the warpgroup has.
  __device__ static void store(const ForwardParams& p, const Tile& tile, unsigned char* memory, const Outputs& outputs,
                               const Sums& sum, int first_product) {
    unsigned char* const of_group = memory - warp_index() % 4 * panel_store_bytes(C);
    // A thread has the same vector of rows at all its positions.
    constexpr int vectors = C.rows / vector, together = warpgroup_size / vectors;
    const int row_index = thread() % vectors * vector, first = thread() / vectors;
    const Row row(p, tile, row_index);
    const Vector gap = biases(p, row);
    Member::sync();  // others may still read what they stored of the tile before
#pragma unroll
    for (int t = 0; t < position_tiles; ++t) {
      Output first_output(p, tile, row, Place(p, first_product + t, first));
      if constexpr (row_by_row) asm volatile("" : "+l"(first_output.at));  // or it would be worked out for each store
#pragma unroll
      for (int column = 0; column < columns; column += part) {
        constexpr int parts = ceil_div(columns, part), turns = ceil_div(part, together);
        const int count = min_of(part, columns - column);
        Element* const buffer = reinterpret_cast<Element*>(of_group) + (t * parts + column / part) % 2 * (part * pitch);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (C.rows < panel_rows && row_of(half) >= C.rows) break;
          Element* const at = buffer + first_column_of_lane() * pitch + row_of(half);
#pragma unroll
          for (int n = 0; n < count / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              at[(n * 8 + e) * pitch] =
                  to_element<Element>(outputs.of_half[half](sum[t][(column / 8 + n) * 4 + half * 2 + e]));
        }
        Member::sync();
        if (first >= together) continue;
        // Places are not worked out for many parts at once: there are not registers enough.
        int from = first;
        if constexpr (!row_by_row) asm volatile("" : "+r"(from));
        Vector value[turns];
#pragma unroll
        for (int k = 0; k < turns; ++k)
          if ((k + 1) * together <= count || k * together + first < count)
            value[k] = *reinterpret_cast<const Vector*>(buffer + (k * together + first) * pitch + row_index);
#pragma unroll
        for (int k = 0; k < turns; ++k) {
          const int next = column + k * together;
          const Output output = row_by_row ? first_output.further(p, next * apart)
                                           : Output(p, tile, row, Place(p, first_product + t, next + from));
          if ((k + 1) * together > count && k * together + first >= count) break;
          if (output.exists(p)) ptx::store(output.at, value[k]);
          fill_gaps(p, row, output, gap);
        }
      }
    }
  }

  /// Stores a tile of a type without taps, or a part of it: the bias, everywhere.
  __device__ static void fill(const ForwardParams& p, const Tile& tile, const Outputs&, int first_product) {
    constexpr int vectors = C.rows / vector, together = warpgroup_size / vectors;
    if (thread() >= together * vectors) return;
    const Row row(p, tile, thread() % vectors * vector);
    const Vector bias = biases(p, row);
#pragma unroll 1
    for (int product = first_product; product < first_product + position_tiles; ++product)
#pragma unroll 1
      for (int column = thread() / vectors; column < columns; column += together) {
        const Output output(p, tile, row, Place(p, product, column));
        if (output.exists(p)) ptx::store(output.at, bias);
        fill_gaps(p, row, output, bias);
      }
  }

 private:
  __device__ static int row_of(int half) { return warp_index() % 4 * 16 + half * 8 + lane_index() / 4; }
  __device__ static int first_column_of_lane() { return lane_index() % 4 * 2; }
  __device__ static int thread() { return threadIdx.x % warpgroup_size; }

  /// What outputs without taps hold at the channels of a vector.
  __device__ static Vector biases(const ForwardParams& p, const Row& row) {
    Vector result{};
    if constexpr (C.fills || C.width_phases < C.stride.w) {
      Element* const elements = reinterpret_cast<Element*>(&result);
#pragma unroll
      for (int i = 0; i < vector; ++i) elements[i] = to_element<Element>(row.bias(p, i));
    }
    return result;
  }

  /// Outputs of phases without taps are the bias; the first phase that has taps sees to them.
  __device__ static void fill_gaps(const ForwardParams& p, const Row& row, const Output& output, const Vector& bias) {
    if constexpr (C.width_phases < C.stride.w) {
      if (row.phase != phase_with_taps(C, 0)) return;
#pragma unroll
      for (int empty = 0; empty < C.stride.w; ++empty) {
        if (phase_has_taps(C, empty)) continue;
        const Output beside = output.further(p, empty - phase_with_taps(C, 0));
        if (beside.exists(p)) ptx::store(beside.at, bias);
      }
    }
  }
};

}  // namespace tconv::device
// ---- epilogue/panel_lines.cuh
// Lines and runs of the panel kernel's epilogue. A warp has 16 rows of the product, each of them a phase of a channel,
// and all positions; rows of the same channel and of all phases along the width are a line, whose outputs are runs with
// these phases interleaved.


namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelLines {
  using Element = ElementOf<C>;
  using Line = BlockLine<C, Tables>;
  using Sums = float[C.position_tiles][C.panel_columns / 2];
  static constexpr int columns = C.panel_columns, slots = C.width_slots;
  static_assert(are_whole_lines(slots));
  static constexpr int halves = 2 / panel_passes(C);  // of the 16 rows, in a pass
  static_assert(!C.row_pairs || (slots == C.stride.w && slots == C.width_phases && sizeof(Element) == 2));
  /// Lines of a run.
  static constexpr int run_lines = device::run_lines(C);
  // Runs of several rows: no output may be staged where one of another row is.
  static constexpr bool whole_rows = C.whole_rows;
  static_assert(!whole_rows || (C.stride.h == C.run_phases && panels_per_row(C) == 1 && row_lead(C) >= 0));
  /// Every output has one of a phase without taps behind it.
  static constexpr bool beside_gap = !whole_rows && C.width_phases == 1 && C.stride.w == 2;

  /// Whether this block stores what is in a pass that begins with a half of the 16 rows: of those of a cluster, each
  /// stores one, or where rows are paired, the lines of half of the lanes.
  static_assert(!C.clustered || halves == 1 || C.row_pairs);
  __device__ static bool stores(const Tile& tile, int half) {
    return !C.clustered || C.row_pairs || tile.split == half;
  }
  __device__ static bool stores_line(const Tile& tile, int line) {
    if constexpr (!C.clustered || !C.row_pairs) return true;
    return line % panel_pass_lines(C) / (panel_pass_lines(C) / 2) == tile.split;
  }
  __device__ static int first_line(int half) { return (warp_index() % 4 * 16 + (C.row_pairs ? 0 : half * 8)) / slots; }
  /// The row that a lane's sums of a half belong to, as a line of the pass and a slot of it.
  static constexpr int rows_apart = C.row_pairs ? 2 : 1;  // of lanes that are neighbours in a column
  __device__ static int line_of_lane() { return lane_index() / 4 * rows_apart / slots; }
  __device__ static int run_of_lane() { return line_of_lane() / run_lines; }
  __device__ static int slot_of_lane(int half) {
    const int first = lane_index() / 4 * rows_apart % slots;
    return C.row_pairs ? first + half : first + (halves > 1 ? half * 8 : 0);
  }
  __device__ static int first_column_of_lane() { return lane_index() % 4 * 2; }
  /// Of whole rows, which of those of a row of positions a lane's line is.
  __device__ static int row_of_lane() {
    const int line = line_of_lane() % run_lines;
    if constexpr (run_lines == run_height(C)) return line;
    int row = 0, next = 0;
#pragma unroll
    for (int phase = 0; phase < C.run_phases; ++phase)
      if (phase_has_taps(phase, C.kernel.h, C.stride.h, C.dilation.h) && next++ == line) row = phase;
    return row;
  }

  /// Of a thread's two rows.
  struct Outputs {
    RowOutput<C> of_half[2];
    __device__ Outputs(const ForwardParams& p, const Tile& tile)
        : of_half{RowOutput<C>(p, channel_of_half(tile, 0)), RowOutput<C>(p, channel_of_half(tile, 1))} {}
  };
  /// The output channel of one of a thread's two rows; -1: it has none.
  __device__ static int channel_of_half(const Tile& tile, int half) {
    const Line line(tile, first_line(half) + line_of_lane());
    return line.exists ? line.channel : -1;
  }

  /// A run of the pass: where its first output goes, outside the tensor perhaps, and which part of it exists.
  struct Run {
    Element* at;
    unsigned short first, end;
  };

  /// The outputs of a line: where they begin for the box, and which of them exist.
  struct LineRuns {
    Element* at;  // the first output of the box, outside the tensor perhaps
    int od, oh, ow;
    bool exists;

    __device__ LineRuns(const ForwardParams& p, const Tile& tile, int index) {
      const Line line(tile, index);
      exists = line.exists && stores_line(tile, index);
      od = tile.origin.d * C.stride.d + line.phase_d - C.padding.d;
      oh = tile.origin.h * C.stride.h + line.phase_h - C.padding.h;
      ow = tile.origin.w * C.stride.w - C.padding.w;
      at = static_cast<Element*>(p.y) + tile.n * p.ys.n + line.channel * p.ys.c + i64(od) * p.ys.d + i64(oh) * p.ys.h +
           ow;
    }

    /// A row of positions of the box, from output `low` on.
    __device__ Run piece(const ForwardParams& p, const Tile& tile, int image, int d, int h, int low) const {
      const bool inside = exists && unsigned(od + d * C.stride.d) < unsigned(p.out.d) &&
                          unsigned(oh + h * C.stride.h) < unsigned(p.out.h) &&
                          (C.images == 1 || tile.n + image < p.batch);
      Element* const row = at + image * p.ys.n + i64(d * C.stride.d) * p.ys.d + i64(h * C.stride.h) * p.ys.h;
      int first = max(low, -ow), end = min(low + panel_run_width(C) * C.stride.w, p.out.w - ow);
      if constexpr (C.window > 1) {
        constexpr int advance = box_advance(C) * C.stride.w;
        const u32 address = u32(reinterpret_cast<u64>(row) / sizeof(Element));
        const auto aligned = [&](int c) { return c + int((0u - (address + u32(c))) % C.window); };
        if (tile.box_w > 0) first = max(first, aligned(0));
        if (tile.box_w + 1 < p.boxes.w.by) end = min(end, aligned(advance));
      }
      Run run;
      run.at = row + low;
      run.first = static_cast<unsigned short>(first - low);
      run.end = static_cast<unsigned short>(inside && end > first ? end - low : 0);
      return run;
    }

    /// A product, or of the rows that it covers those of a run, from `product_row` on.
    __device__ Run of_product(const ForwardParams& p, const Tile& tile, int product, int product_row) const {
      const int row = product / panels_per_row(C) * C.product_rows + product_row, d = row / C.box.h, h = row % C.box.h;
      if constexpr (whole_rows) {
        const int rows = C.product_rows == 1 ? C.run_rows : min(C.run_rows, C.product_rows - product_row);
        return whole(p, d, h, rows * C.run_phases);
      }
      return piece(p, tile, 0, d, h, product % panels_per_row(C) * columns * C.stride.w);
    }

    /// So many whole rows of outputs, those of the row of positions `h` and of the ones that follow. The first ones may
    /// be before the image, and the last ones behind it.
    __device__ Run whole(const ForwardParams& p, int d, int h, int rows) const {
      const int first_row = oh + h * C.stride.h;
      const int first = max(0, -first_row), end = min(rows, p.out.h - first_row);
      const bool inside = exists && unsigned(od + d * C.stride.d) < unsigned(p.out.d);
      Run run;
      run.at = at + i64(d * C.stride.d) * p.ys.d + i64(h * C.stride.h) * p.ys.h;
      run.first = static_cast<unsigned short>(row_lead(C) + first * p.out.w);
      run.end = static_cast<unsigned short>(inside && end > first ? row_lead(C) + end * p.out.w : 0);
      return run;
    }
  };
};

}  // namespace tconv::device
// ---- epilogue/panel_staging.cuh
// What a lane of the panel kernel stages of its positions: the outputs of its row, and of phases without taps the bias.


namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelStaging {
  using Lines = PanelLines<C, Tables>;
  using Element = ElementOf<C>;
  static constexpr int columns = C.panel_columns, phases = C.width_phases, slots = C.width_slots;

  // Outputs of phases without taps are the bias. Lanes whose rows are padding stage as many of these as they can, those
  // of the first phase that has taps the others.
  static constexpr int gaps = C.stride.w - phases, padding = slots - phases, gaps_left = max_of(gaps - padding, 0);

  /// Calls `visit(phase, index)` for each of the phases without taps.
  template <class Visit>
  __device__ static void each_gap(const Visit& visit) {
    int index = 0;
#pragma unroll
    for (int phase = 0; phase < C.stride.w; ++phase)
      if (!phase_has_taps(C, phase)) visit(phase, index++);
  }

  /// What a lane stages of each position.
  struct OfLane {
    int phase;
    bool gap = false;
    __device__ explicit OfLane(int half) : phase(phase_of_slot<C>(Lines::slot_of_lane(half))) {
      each_gap([&](int empty, int index) {
        if (index < padding && Lines::slot_of_lane(half) == phases + index) phase = empty, gap = true;
      });
    }
    __device__ Element value(float sum, const RowOutput<C>& output) const {
      return to_element<Element>(padding > 0 && gaps > 0 && gap ? output.bias : output(sum));
    }
  };

  /// Stages one number of each position: `each(phase, visit)` calls `visit(to, sum)` for those of the lane, `to` being
  /// the first output of the position. Lanes part once, not at every position.
  template <class Each>
  __device__ static void stage_each(const RowOutput<C>& output, int half, const Each& each) {
    const OfLane lane(half);
    if (padding <= gaps || lane.phase >= 0)
      each(lane.phase, [&](Element* to, float sum) { to[lane.phase] = lane.value(sum, output); });
    if constexpr (gaps_left > 0) {
      if (!lane.gap && lane.phase == phase_with_taps(C, 0))
        each(lane.phase, [&](Element* to, float) {
          each_gap([&](int empty, int index) {
            if (index >= padding) to[empty] = to_element<Element>(output.bias);
          });
        });
    }
  }

  /// Of a lane's two neighbouring columns, whether it stages the second one first. Words of the first ones alone would
  /// be those of half the banks.
  __device__ static bool second_first() {
    if (sizeof(Element) == 2 || C.stride.w == 1) return false;
    return slots >= 8 ? lane_index() % 4 >= 2 : Lines::line_of_lane() % 2 != 0;
  }

  /// The same of a lane whose first output goes to `first`, wherever lines begin: lanes of every other line write where
  /// those of the lines between them do not.
  __device__ static bool second_first(const Element* first) {
    constexpr bool alternate = sizeof(Element) == 4 && (C.stride.w == 2 || C.stride.w == 4) && slots == C.stride.w;
    if constexpr (!alternate) return second_first();
    return (reinterpret_cast<u64>(first) / (C.stride.w * sizeof(Element)) + u64(Lines::line_of_lane())) % 2 != 0;
  }

  /// Where rows are paired, in which words a lane stages its four outputs of two neighbouring columns. With a stride of
  /// two they follow one another: one store where the first is aligned for it, two, or a word between two elements.
  /// With others, they are two words apart, or four elements.
  enum class Grouped { quads, pairs, middle, elements };
  static constexpr bool outputs_follow = C.stride.w == 2;
  /// What suits outputs, the first of which is so many behind a multiple of four.
  static constexpr Grouped grouped_at(int place) {
    return place % 2 == 0   ? outputs_follow && place % 4 == 0 ? Grouped::quads : Grouped::pairs
           : outputs_follow ? Grouped::middle
                            : Grouped::elements;
  }

  /// Stages columns n and n + 1 of both of a lane's rows, all of which are outputs; `to` is where the first one goes.
  template <Grouped by>
  __device__ static void stage_paired(Element* to, const float (&sum)[columns / 2], int n, const RowOutput<C>& output) {
    const float a = output(sum[n * 4]), b = output(sum[n * 4 + 2]);      // a position's two phases,
    const float c = output(sum[n * 4 + 1]), d = output(sum[n * 4 + 3]);  // and those of the next position
    if constexpr (by == Grouped::quads) {
      store_quad(to, a, b, c, d);
    } else if constexpr (by == Grouped::pairs) {
      store_pair(to, a, b), store_pair(to + C.stride.w, c, d);
    } else {
      to[0] = to_element<Element>(a);
      if constexpr (by == Grouped::middle)
        store_pair(to + 1, b, c);
      else
        to[1] = to_element<Element>(b), to[C.stride.w] = to_element<Element>(c);
      to[C.stride.w + 1] = to_element<Element>(d);
    }
  }

  /// A lane's sum of one of two neighbouring columns, or of the other one.
  __device__ static float sum_of(const float (&sum)[columns / 2], int n, int half, int e, bool other) {
    const int first = n * 4 + half * 2;
    return other ? sum[first + 1 - e] : sum[first + e];
  }
};

}  // namespace tconv::device
// ---- epilogue/panel_flat_store.cuh
// The epilogue of the panel kernel where products are flat: they cover all of the box, and its runs are staged
// together. A run is a row of a line, or a slice of rows that follow one another; runs are described once for a tile,
// lines once for a pass.


namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelFlatStore {
  using Lines = PanelLines<C, Tables>;
  using Staging = PanelStaging<C, Tables>;
  using Element = ElementOf<C>;
  using LineRuns = typename Lines::LineRuns;
  static constexpr int columns = C.panel_columns, vector = store_vector(C), pass_runs = panel_pass_runs(C);
  static constexpr int line_stride = panel_line_stride(C), run_stride = panel_run_stride(C);
  static constexpr int line_runs = flat_runs_of_line(C), flat_runs = pass_runs * line_runs;  // of a pass
  static constexpr int pitch = x_extent(C).w, rows = panel_runs(C);                          // of staged positions
  static_assert(!Lines::whole_rows || C.run_rows == C.box.h);

  /// Stores a tile through `memory`, which is the warp's own.
  __device__ static void store(const ForwardParams& p, const Tile& tile, unsigned char* memory,
                               const typename Lines::Outputs& outputs, const typename Lines::Sums& sum) {
    Element* const staging = reinterpret_cast<Element*>(memory);
    describe_rows(p, tile, flat_rows(memory));
#pragma unroll
    for (int first_half = 0; first_half < 2; first_half += Lines::halves) {
      if (C.rows < panel_rows && Lines::first_line(first_half) * C.width_slots >= C.rows) break;
      if (!Lines::stores(tile, first_half)) continue;
      // Calls `stage(half)` for each half of the rows that is stored with this one.
      const auto each_half = [&](const auto& stage) {
#pragma unroll
        for (int i = 0; i < Lines::halves; ++i) stage(first_half + i);
      };
      if (lane_index() < pass_runs)
        flat_lines(memory)[lane_index()] =
            FlatLine(LineRuns(p, tile, Lines::first_line(first_half) + lane_index() * Lines::run_lines));
      if constexpr (C.row_pairs) {
#pragma unroll
        for (int t = 0; t < C.position_tiles; ++t) stage_paired(staging, sum[t], outputs.of_half[0], t);
      } else {
        each_half([&](int half) {
#pragma unroll
          for (int t = 0; t < C.position_tiles; ++t) stage(staging, sum[t], outputs.of_half[half], half, t);
        });
      }
      __syncwarp();
      store_runs(p, tile, memory);
      __syncwarp();
    }
  }

 private:
  struct FlatRow {
    i64 offset;    // from the first output of the box
    short d, h;    // outputs from it along depth and height
    short staged;  // which staged row it begins with
    short exists;  // its image is one of the batch
  };
  struct FlatLine {
    Element* at;
    int d, h;  // its first output, along the depth far outside where the line does not exist
    __device__ explicit FlatLine(const LineRuns& line)
        : at(line.at), d(line.exists ? line.od : -(1 << 30)), h(line.oh) {}
  };
  static_assert(sizeof(FlatRow) == run_entry_bytes && sizeof(FlatLine) == run_entry_bytes);
  __device__ static FlatRow* flat_rows(unsigned char* memory) {
    return reinterpret_cast<FlatRow*>(memory + panel_staging_bytes(C));
  }
  __device__ static FlatLine* flat_lines(unsigned char* memory) {
    return reinterpret_cast<FlatLine*>(flat_rows(memory) + line_runs);
  }

  __device__ static void describe_rows(const ForwardParams& p, const Tile& tile, FlatRow* table) {
    for (int run = lane_index(); run < line_runs; run += warp_size) {
      const int row = run * C.run_rows, h = row % C.box.h * C.stride.h, slice = row / C.box.h;
      const int d = slice % C.box.d * C.stride.d, image = slice / C.box.d;
      table[run] = {image * p.ys.n + i64(d) * p.ys.d + i64(h) * p.ys.h, short(d), short(h), short(x_row_of(C, row)),
                    short(C.images == 1 || tile.n + image < p.batch)};
    }
  }

  __device__ static void stage(Element* staging, const float (&sum)[columns / 2], const RowOutput<C>& output, int half,
                               int product) {
    Element* const at = staging + Lines::run_of_lane() * line_stride +
                        Lines::line_of_lane() % Lines::run_lines * (C.box.w * C.stride.w) + panel_flat_skew(C);
    // Places are worked out again for each half of the rows: there are not registers enough to keep them.
    int own = Lines::first_column_of_lane();
    asm volatile("" : "+r"(own));
    const int swapped = Staging::second_first();
    Element* const own_at = at + own * C.stride.w;
    Element* const at_of[2] = {own_at + (swapped ? C.stride.w : 0), own_at + (swapped ? 0 : C.stride.w)};
    Staging::stage_each(output, half, [&](int, const auto& visit) {
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        // Eight columns begin with this one: of one row, most of the time, and all of it outputs.
        const int first = product * columns + n * 8, row = first / pitch, column = first % pitch;
        if (row >= rows || (column >= C.box.w && column + 8 <= pitch)) continue;
        // Without a halo, rows may follow one another here as they do there.
        constexpr bool dense = pitch == C.box.w && run_stride == C.box.w * C.stride.w;
        const bool whole = dense ? first + 8 <= rows * pitch : column + 8 <= C.box.w;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float value = Staging::sum_of(sum, n, half, e, swapped);
          if (whole) {
            visit(at_of[e] + row * run_stride + column * C.stride.w, value);
            continue;
          }
          int own_row = row, own_column = column + own + (e ^ swapped);
#pragma unroll
          for (int i = 0; i < ceil_div(8, pitch); ++i)
            if (own_column >= pitch) own_column -= pitch, ++own_row;
          if (own_column < C.box.w && own_row < rows) visit(at + own_row * run_stride + own_column * C.stride.w, value);
        }
      }
    });
  }

  /// Both rows of a lane, which are phases of one line. (It goes through the columns as stage() does, and apart from
  /// it: with what is alike in one function, registers of tiles without pairs came out otherwise.)
  __device__ static void stage_paired(Element* staging, const float (&sum)[columns / 2], const RowOutput<C>& output,
                                      int product) {
    using Grouped = typename Staging::Grouped;
    constexpr int line_outputs = C.box.w * C.stride.w;
    static_assert(run_stride % 2 == 0 && line_outputs % 2 == 0, "whether places are even is one thing for all");
    constexpr bool quads = Staging::outputs_follow && (Lines::run_lines == 1 || line_outputs % 4 == 0);
    Element* const at = staging + Lines::run_of_lane() * line_stride +
                        Lines::line_of_lane() % Lines::run_lines * line_outputs + panel_flat_skew(C) +
                        Lines::slot_of_lane(0);
    int own = Lines::first_column_of_lane();
    asm volatile("" : "+r"(own));
    Element* const own_at = at + own * C.stride.w;
#pragma unroll
    for (int n = 0; n < columns / 8; ++n) {
      const int first = product * columns + n * 8, row = first / pitch, column = first % pitch;
      if (row >= rows || (column >= C.box.w && column + 8 <= pitch)) continue;
      constexpr bool dense = pitch == C.box.w && run_stride == line_outputs;
      if (dense ? first + 8 <= rows * pitch : column + 8 <= C.box.w) {
        const int place = row * run_stride + column * C.stride.w;
        if constexpr (panel_flat_skew(C) % 2 != 0)
          Staging::template stage_paired<Staging::grouped_at(1)>(own_at + place, sum, n, output);
        else if (quads && (panel_flat_skew(C) + place) % 4 == 0)
          Staging::template stage_paired<Staging::grouped_at(0)>(own_at + place, sum, n, output);
        else
          Staging::template stage_paired<Grouped::pairs>(own_at + place, sum, n, output);
        continue;
      }
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        int own_row = row, own_column = column + own + next;
#pragma unroll
        for (int i = 0; i < ceil_div(8, pitch); ++i)
          if (own_column >= pitch) own_column -= pitch, ++own_row;
        if (own_column >= C.box.w || own_row >= rows) continue;
        Element* const to = at + own_row * run_stride + own_column * C.stride.w;
#pragma unroll
        for (int second = 0; second < 2; ++second)
          to[second] = to_element<Element>(output(sum[n * 4 + second * 2 + next]));
      }
    }
  }

  /// A run of a pass.
  struct FlatRun {
    Element* at;
    int staged;  // where its output 0 is
    bool exists;
    __device__ FlatRun(const ForwardParams& p, unsigned char* memory, int index) {
      const FlatRow row = flat_rows(memory)[index % line_runs];
      const FlatLine line = flat_lines(memory)[index / line_runs];
      exists =
          row.exists && unsigned(line.d + row.d) < unsigned(p.out.d) && unsigned(line.h + row.h) < unsigned(p.out.h);
      at = line.at + row.offset;
      staged = index / line_runs * line_stride + row.staged * run_stride + panel_flat_skew(C);
    }
  };

  __device__ static void store_runs(const ForwardParams& p, const Tile& tile, unsigned char* memory) {
    // Of every run the same outputs exist.
    const int ow = tile.origin.w * C.stride.w - C.padding.w;
    const int rows = min(C.run_rows * Lines::run_lines, p.out.h - (tile.origin.h * C.stride.h - C.padding.h));
    const int first = max(0, -ow),
              end = max(Lines::whole_rows ? rows * p.out.w : min(C.box.w * C.stride.w, p.out.w - ow), first);
    // Strides of dimensions of size 1 are never stepped along.
    const i64 strides = p.ys.c | (p.batch > 1 ? p.ys.n : 0) | (p.out.d > 1 ? p.ys.d : 0) |
                        (p.out.h > (Lines::whole_rows ? C.box.h * Lines::run_lines : 1) ? p.ys.h : 0);
    const bool in_memory = (reinterpret_cast<i64>(p.y) / int(sizeof(Element)) | strides | ow + first) % vector == 0;
    // Slices are staged one after the other, with the rows of their halo between them.
    constexpr bool in_staging = !Lines::whole_rows || run_stride * x_extent(C).h % vector == 0;
    if (in_memory && in_staging && (panel_flat_skew(C) + first) % vector == 0)
      store_aligned(p, memory, first, end);
    else
      store_joined(p, memory, first, end);
  }

  /// Runs are in memory as they are staged. A lane has the same vectors of several runs.
  __device__ static void store_aligned(const ForwardParams& p, unsigned char* memory, int first, int end) {
    constexpr int most = ceil_div(C.run_rows * Lines::run_lines * C.box.w * C.stride.w, vector),
                  lanes = min_of(most, warp_size);
    constexpr int together = warp_size / lanes;  // runs
    const Element* const staging = reinterpret_cast<const Element*>(memory) + first;
    const int place = lane_index() % lanes, whole = (end - first) / vector;
    if (lane_index() < lanes * together) {
#pragma unroll 4
      for (int index = lane_index() / lanes; index < flat_runs; index += together) {
        const FlatRun run(p, memory, index);
#pragma unroll
        for (int i = 0; i < ceil_div(most, lanes); ++i) {
          const int own = place + i * lanes;
          if (run.exists && own < whole)
            ptx::store(run.at + first + own * vector,
                       *reinterpret_cast<const uint4*>(staging + run.staged + own * vector));
        }
      }
    }
    // What is behind the last whole vector.
    const int tail = (end - first) % vector;
    if (tail == 0) return;
    for (int item = lane_index(); item < flat_runs * vector; item += warp_size) {
      const FlatRun run(p, memory, item / vector);
      const int own = whole * vector + item % vector;
      if (run.exists && item % vector < tail) run.at[first + own] = staging[run.staged + own];
    }
  }

  /// Runs are in memory otherwise: each vector is joined from two that are staged. Lanes take vectors in turn.
  __device__ static void store_joined(const ForwardParams& p, unsigned char* memory, int first, int end) {
    constexpr int together = 2;
    if (first == end) return;
    const int vectors = (end - first + 2 * vector - 2) / vector;  // one more where it begins between them
    const Element* const staging = reinterpret_cast<const Element*>(memory);
    int run = lane_index() / vectors, index = lane_index() % vectors;
    const int next_run = warp_size / vectors, next_index = warp_size % vectors;
#pragma unroll 1
    for (int item = 0; item < flat_runs * vectors; item += warp_size * together) {
      Element* at[together];
      int begins[together];  // with this output of the run
      Words<4> value[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const FlatRun own(p, memory, min(run, flat_runs - 1));
        at[i] = own.at;
        const int c = first + index * vector - skew_of<vector>(at[i] + first);
        const int place = own.staged + c, shift = (place % vector + vector) % vector;
        const auto* const staged = reinterpret_cast<const Words<4>*>(staging + (place - shift));
        // Nothing is staged before the first run.
        value[i] = shifted<Element>(place < shift ? Words<4>{} : staged[0], staged[1], shift);
        begins[i] = own.exists && run < flat_runs ? c : end;
        run += next_run, index += next_index;
        if (index >= vectors) index -= vectors, ++run;
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const Words<4>& v = value[i];
        device::store_vector<vector>(at[i], first, end, begins[i],
                                     make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]));
      }
    }
  }
};

}  // namespace tconv::device
// ---- epilogue/panel_runs.cuh
// How runs of the panel kernel leave: lines of a pass side by side, 16 bytes at a time but for their ragged ends.


namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelRuns {
  using Lines = PanelLines<C, Tables>;
  using Element = ElementOf<C>;
  using Run = typename Lines::Run;
  static constexpr int vector = store_vector(C);
  static constexpr int run_stride = panel_run_stride(C), pass_runs = panel_pass_runs(C);
  /// The lanes that have sums of a run.
  static constexpr int own_lanes = panel_line_lanes(C) * Lines::run_lines;
  /// The lanes that have sums of a line store its run, one vector after another; but eight at least, which are a whole
  /// line of memory. Long runs of 32-bit outputs are stored by 16 at least, which begin where a line of memory does,
  /// and only sectors that a run has all of leave as vectors: memory is slow to take sectors in two parts. Long runs of
  /// 16-bit outputs are several rows, and a warp stores one after the other.
  static constexpr bool long_runs = sizeof(Element) == 4 && !C.panel_flat && run_stride >= 32 * vector;
  static constexpr bool warp_runs = sizeof(Element) == 2 && C.whole_rows && run_stride >= 64 * vector;
  static constexpr int run_lanes = warp_runs ? warp_size : max_of(own_lanes, long_runs ? 16 : 8);
  static constexpr int whole_unit = long_runs ? 32 / int(sizeof(Element)) : vector;

  /// The run of a lane that stages it.
  __device__ static Run run_of(const Run& run, int lane) {
    const u64 at = reinterpret_cast<u64>(run.at);
    const u32 low = __shfl_sync(0xffffffff, u32(at), lane), high = __shfl_sync(0xffffffff, u32(at >> 32), lane);
    const u32 ends = __shfl_sync(0xffffffff, u32(run.first) | u32(run.end) << 16, lane);
    Run result;
    result.at = reinterpret_cast<Element*>(u64(low) | u64(high) << 32);
    result.first = static_cast<unsigned short>(ends), result.end = static_cast<unsigned short>(ends >> 16);
    return result;
  }

  /// What a run is stored from: where its vectors are staged,
  struct Staged {
    const Element* from;
    __device__ uint4 vector_at(int index) const { return *reinterpret_cast<const uint4*>(from + index); }
    __device__ Element element_at(int index) const { return from[index]; }
  };
  /// or one number.
  struct Filled {
    u32 bits;
    __device__ explicit Filled(u32 of_element) : bits(of_element) {}
    __device__ uint4 vector_at(int) const {
      const u32 word = sizeof(Element) == 2 ? bits | bits << 16 : bits;
      return make_uint4(word, word, word, word);
    }
    __device__ Element element_at(int) const { return element_of<Element>(bits); }
  };

  /// Vectors are aligned in memory and in the staging buffer, and the first one may begin before the run: where a lane
  /// stores, and from where, is a constant from its first vector on. `source_of(line)` is what the run of a line is
  /// stored from.
  template <class Source>
  __device__ static void store_runs(const Run& of_lane, const Source& source_of) {
    constexpr int lanes = run_lanes, unit = whole_unit, together = 4;
    constexpr int vectors = run_stride / vector + (long_runs ? 7 : 0);  // from the beginning of a line of memory on
    const int index = lane_index() % lanes;
#pragma unroll
    for (int line = 0; line < pass_runs; line += warp_size / lanes) {
      const int own = line + lane_index() / lanes;
      const Run run = lanes == own_lanes ? of_lane : run_of(of_lane, own * own_lanes);
      const auto source = source_of(own);
      const int skew = skew_of<vector>(run.at), begin = run.first + skew, end = run.end + skew;
      Element* const to = run.at - skew;
      // Outputs from `head` to `tail` are whole vectors, or whole sectors.
      const int place = index - (long_runs ? int(reinterpret_cast<u64>(to) / 16 % 8) : 0);
      const int lead = long_runs ? skew_of<unit>(to) : 0;
      const int head = min(round_up(begin + lead, unit) - lead, end), tail = max(head, ((end + lead) & -unit) - lead);
      const u32 from_head = u32(place * vector - head), whole = u32(tail - head);
      Element* own_to = to + place * vector;
      asm volatile("" : "+l"(own_to));  // or it would be worked out again for each store
#pragma unroll
      for (int first = 0; first < vectors; first += lanes * together) {
        uint4 value[together];
        bool exists[together];
#pragma unroll
        for (int i = 0; i < together; ++i) {
          const int next = first + i * lanes;
          exists[i] = next < vectors && from_head + u32(next * vector) < whole;
          if (long_runs ? exists[i] : next + place < vectors) value[i] = source.vector_at((place + next) * vector);
        }
#pragma unroll
        for (int i = 0; i < together; ++i)
          if (exists[i]) ptx::store(own_to + (first + i * lanes) * vector, value[i]);
      }
      // What is before them and behind them, a lane each.
      const auto store_element = [&](int own, int limit) {
        if (own < limit) ptx::store(to + own, source.element_at(own));
      };
      if constexpr (lanes >= 2 * unit &&
                    !Lines::beside_gap) {  // together; beside gaps that was slower (docs/kernels.md)
        const bool behind = index >= lanes / 2;
        store_element(behind ? tail + index - lanes / 2 : begin + index, behind ? end : head);
      } else {
        store_element(begin + index, head);
        store_element(tail + index, end);
      }
    }
  }
};

}  // namespace tconv::device
// ---- epilogue/panel_row_store.cuh
// The epilogue of the panel kernel where a product is a piece of a row of positions, or covers several rows one after
// the other. Runs are staged at the alignment they have in memory, so that all but their ragged ends leave 16 bytes at
// a time. Where rows are whole rows of outputs, which follow one another in memory, several are one run: those of all
// phases along the height, and of several rows of positions. Outputs of phases without taps are between the others
// then, and all of the run is the bias before these are staged.


namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelRowStore {
  using Lines = PanelLines<C, Tables>;
  using Staging = PanelStaging<C, Tables>;
  using Runs = PanelRuns<C, Tables>;
  using Element = ElementOf<C>;
  using Run = typename Lines::Run;
  static constexpr int columns = C.panel_columns, line_stride = panel_line_stride(C), vector = store_vector(C);
  static constexpr bool has_gaps = Lines::whole_rows && runs_have_gaps(C);

  /// Stores a tile, or the part of it that begins with product `first_product`, through `memory`, which is the warp's
  /// own.
  __device__ static void store(const ForwardParams& p, const Tile& tile, unsigned char* memory,
                               const typename Lines::Outputs& outputs, const typename Lines::Sums& sum,
                               int first_product) {
    Element* const staging = reinterpret_cast<Element*>(memory);
#pragma unroll
    for (int first_half = 0; first_half < 2; first_half += Lines::halves) {
      if (C.rows < panel_rows && Lines::first_line(first_half) * C.width_slots >= C.rows) break;
      if (!Lines::stores(tile, first_half)) continue;
      // Calls `stage(half)` for each half of the rows that is stored with this one.
      const auto each_half = [&](const auto& stage) {
#pragma unroll
        for (int i = 0; i < Lines::halves; ++i) stage(first_half + i);
      };
      const typename Lines::LineRuns line(p, tile,
                                          Lines::first_line(first_half) + Lines::run_of_lane() * Lines::run_lines);
      Run run;
      const auto store_row = [&](int t, auto index) {
        const int of_run = (C.product_rows == 1 ? t : index.value) % C.run_rows;
        if (of_run == 0) {
          run = line.of_product(p, tile, first_product + t, index.value);
          if constexpr (has_gaps) {
            fill_run(staging, run, outputs.of_half[first_half].bias);
            __syncwarp();
          }
        }
        const Row<index.value> row{(of_run * run_height(C) + Lines::row_of_lane()) * p.out.w, p.out.w};
        if constexpr (C.row_pairs && !has_gaps)
          stage_paired_rows(staging, run, sum[t], outputs.of_half[0], row);
        else
          each_half([&](int half) {
            if constexpr (has_gaps)
              stage_between_gaps(staging, run, sum[t], outputs.of_half[half], half, row);
            else if constexpr (Lines::beside_gap)
              stage_beside_gaps(staging, run, sum[t], outputs.of_half[half], half, row);
            else if (stage_pairs(run, row))
              stage_run<true>(staging, run, sum[t], outputs.of_half[half], half, row);
            else
              stage_run<false>(staging, run, sum[t], outputs.of_half[half], half, row);
          });
        if (of_run + 1 == C.run_rows || (C.product_rows > 1 && index.value + 1 == C.product_rows)) {
          __syncwarp();
          Runs::store_runs(run, [&](int own) { return typename Runs::Staged{staging + own * line_stride}; });
          __syncwarp();
        }
      };
#pragma unroll
      for (int t = 0; t < C.position_tiles; ++t) unrolled<C.product_rows>([&](auto index) { store_row(t, index); });
    }
  }

 private:
  /// Row `Index` of the product: where its outputs are staged behind those of the run's first row, and how many there
  /// are. (Which sums are whose must be plain to the compiler, or it has them in memory.)
  template <int Index>
  struct Row {
    static constexpr int first_column = Index * x_extent(C).w;
    int place, width;
  };

  /// Whether two neighbouring outputs are one store: all lines are aligned for it.
  template <int Index>
  __device__ static bool stage_pairs(const Run& run, const Row<Index>& row) {
    if constexpr (C.stride.w > 1) return false;
    return __all_sync(0xffffffff, (skew_of<2>(run.at) + row.place + Row<Index>::first_column) % 2 == 0);
  }

  /// Calls `visit(n, column, whole)` for each eight columns of a row: the columns from 8n on are positions of the row
  /// from `column` on; all of them, but for the first and last ones.
  template <int Index, class Visit>
  __device__ static void each_eight(const Row<Index>& row, const Visit& visit) {
    constexpr int width = panel_run_width(C);
    constexpr int lowest = Lines::whole_rows ? ceil_div(row_lead(C), C.stride.w) : 0;
    constexpr int end = Lines::whole_rows ? width - most_beyond_row : width;
    constexpr int first = Row<Index>::first_column;
#pragma unroll
    for (int n = first / 8; n < ceil_div(first + width, 8); ++n) {
      const int column = n * 8 - first;
      visit(n, column, column >= lowest && column + 8 <= end);
    }
  }
  /// Whether a column of a row, which may be before it or behind, has an output of a phase.
  template <int Index>
  __device__ static bool is_of_row(const Row<Index>& row, int column, int phase) {
    if constexpr (Lines::whole_rows)
      return unsigned(column) < unsigned(panel_run_width(C)) &&
             unsigned(column * C.stride.w + phase - row_lead(C)) < unsigned(row.width);
    return unsigned(column) < unsigned(panel_run_width(C));
  }
  /// Calls `visit(to, sum)` for each of a lane's positions of a row; `at` is where the outputs of its first one go.
  template <int Index, class Visit>
  __device__ static void each_position(Element* at, const float (&sum)[columns / 2], int half, const Row<Index>& row,
                                       int phase, const Visit& visit) {
    const int swapped = Staging::second_first(at + phase);
    Element* const at_of[2] = {at + (swapped ? C.stride.w : 0), at + (swapped ? 0 : C.stride.w)};
    each_eight(row, [&](int n, int column, bool whole) {
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (whole || is_of_row(row, column + Lines::first_column_of_lane() + (e ^ swapped), phase))
          visit(at_of[e] + column * C.stride.w, Staging::sum_of(sum, n, half, e, swapped));
    });
  }
  /// Where the outputs of a lane's first position are staged.
  __device__ static Element* staged_at(Element* staging, const Run& run) {
    return staging + Lines::run_of_lane() * line_stride + skew_of<vector>(run.at) +
           Lines::first_column_of_lane() * C.stride.w;
  }

  /// Stages the bias everywhere in a run.
  __device__ static void fill_run(Element* staging, const Run& run, float bias) {
    constexpr int lanes = Runs::own_lanes;
    const typename Runs::Filled filled(bits_of(to_element<Element>(bias)));
    uint4* const at = reinterpret_cast<uint4*>(staging + Lines::run_of_lane() * line_stride);
    const int end = (skew_of<vector>(run.at) + run.end + vector - 1) / vector;
#pragma unroll 4
    for (int i = lane_index() % lanes; i < end; i += lanes) at[i] = filled.vector_at(0);
  }
  template <int Index>
  __device__ static void stage_between_gaps(Element* staging, const Run& run, const float (&sum)[columns / 2],
                                            const RowOutput<C>& output, int half, const Row<Index>& row) {
    const int phase = phase_of_slot<C>(Lines::slot_of_lane(half));
    if (phase < 0) return;
    each_position(staged_at(staging, run) + row.place, sum, half, row, phase,
                  [&](Element* to, float value) { to[phase] = to_element<Element>(output(value)); });
  }

  /// Stages outputs with those beside them that are the bias, in pairs that are aligned: with the next ones, or with
  /// those before; one is left then at the end of the run. The phase that has taps is the first: tap 0 is its.
  template <int Index>
  __device__ static void stage_beside_gaps(Element* staging, const Run& run, const float (&sum)[columns / 2],
                                           const RowOutput<C>& output, int half, const Row<Index>& row) {
    static_assert(phase_with_taps(C, 0) == 0);
    Element* const at = staged_at(staging, run);
    const int skew = skew_of<2>(run.at);
    each_position(at - skew, sum, half, row, 0, [&](Element* to, float value) {
      const float own = output(value);
      store_pair(to, skew ? output.bias : own, skew ? own : output.bias);
    });
    if (skew && lane_index() % 4 == 0) at[2 * panel_run_width(C) - 1] = to_element<Element>(output.bias);
  }

  /// Both rows of a lane, which are phases of one line. Lanes of all lines take the words that suit all of them.
  template <int Index>
  __device__ static void stage_paired_rows(Element* staging, const Run& run, const float (&sum)[columns / 2],
                                           const RowOutput<C>& output, const Row<Index>& row) {
    using Grouped = typename Staging::Grouped;
    // Of a lane's outputs in the first eight columns of the row, and so of all: behind a multiple of four.
    const int place = skew_of<4>(run.at) + row.place - Row<Index>::first_column * C.stride.w;
    const auto all = [&](int residue, int of) { return __all_sync(0xffffffff, (place & (of - 1)) == residue); };
    if (Staging::outputs_follow && all(0, 4))
      stage_paired_as<Grouped::quads>(staging, run, sum, output, row);
    else if (all(0, 2))
      stage_paired_as<Grouped::pairs>(staging, run, sum, output, row);
    else if (Staging::outputs_follow && all(1, 2))
      stage_paired_as<Grouped::middle>(staging, run, sum, output, row);
    else
      stage_paired_as<Grouped::elements>(staging, run, sum, output, row);
  }
  template <typename Staging::Grouped by, int Index>
  __device__ static void stage_paired_as(Element* staging, const Run& run, const float (&sum)[columns / 2],
                                         const RowOutput<C>& output, const Row<Index>& row) {
    // Those that the line does not have are not compiled either.
    if constexpr (!Staging::outputs_follow && (by == Staging::Grouped::quads || by == Staging::Grouped::middle)) return;
    const int phase = Lines::slot_of_lane(0);
    Element* const at = staged_at(staging, run) + row.place + phase;
    each_eight(row, [&](int n, int column, bool whole) {
      Element* const to = at + column * C.stride.w;
      if (whole) return Staging::template stage_paired<by>(to, sum, n, output);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int next = i / 2, second = i % 2;
        if (is_of_row(row, column + Lines::first_column_of_lane() + next, phase + second))
          to[next * C.stride.w + second] = to_element<Element>(output(sum[n * 4 + second * 2 + next]));
      }
    });
  }

  template <bool Pairs, int Index>
  __device__ static void stage_run(Element* staging, const Run& run, const float (&sum)[columns / 2],
                                   const RowOutput<C>& output, int half, const Row<Index>& row) {
    Element* const at = staged_at(staging, run) + row.place;
    if constexpr (Pairs) {
      each_eight(row, [&](int n, int column, bool whole) {
        const float low = output(sum[n * 4 + half * 2]), high = output(sum[n * 4 + half * 2 + 1]);
        if (whole) return store_pair(at + column, low, high);
        const int own = column + Lines::first_column_of_lane();
        if (is_of_row(row, own, 0)) at[column] = to_element<Element>(low);
        if (is_of_row(row, own + 1, 0)) at[column + 1] = to_element<Element>(high);
      });
    } else {
      Staging::stage_each(output, half,
                          [&](int phase, const auto& visit) { each_position(at, sum, half, row, phase, visit); });
    }
  }
};

}  // namespace tconv::device
// ---- epilogue/panel_store.cuh
// The epilogue of the panel kernel. A warp stores its 16 rows of the product by itself, eight at a time or, where they
// are one line, all 16, through shared memory of its own: as runs of outputs, of rows of positions
// (panel_row_store.cuh) or of the whole box (panel_flat_store.cuh).


namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelStore {
  using Lines = PanelLines<C, Tables>;
  using Outputs = typename Lines::Outputs;
  __device__ static int channel_of_half(const Tile& tile, int half) { return Lines::channel_of_half(tile, half); }

  /// Stores a tile, or the part of it that begins with product `first_product`, through `memory`, which is the warp's
  /// own.
  __device__ static void store(const ForwardParams& p, const Tile& tile, unsigned char* memory, const Outputs& outputs,
                               const typename Lines::Sums& sum, int first_product) {
    if constexpr (C.panel_flat)
      PanelFlatStore<C, Tables>::store(p, tile, memory, outputs, sum);
    else
      PanelRowStore<C, Tables>::store(p, tile, memory, outputs, sum, first_product);
  }

  /// Stores a tile of a type without taps, or a part of it: the bias, everywhere.
  __device__ static void fill(const ForwardParams& p, const Tile& tile, const Outputs& outputs, int first_product) {
    using Element = ElementOf<C>;
    using Runs = PanelRuns<C, Tables>;
    constexpr int runs = C.panel_flat ? box_rows(C) : member_runs(C);
#pragma unroll
    for (int half = 0; half < 2; half += Lines::halves) {
      if (C.rows < panel_rows && Lines::first_line(half) * C.width_slots >= C.rows) break;
      const typename Lines::LineRuns line(p, tile, Lines::first_line(half) + Lines::run_of_lane() * Lines::run_lines);
      const u32 bias = bits_of(to_element<Element>(outputs.of_half[half].bias));
#pragma unroll 1
      for (int i = 0; i < runs; ++i) {
        const auto run = C.panel_flat
                             ? line.piece(p, tile, i / C.box.h / C.box.d, i / C.box.h % C.box.d, i % C.box.h, 0)
                             : line.of_product(p, tile, first_product + i / product_runs(C) * run_products(C),
                                               i % product_runs(C) * C.run_rows);
        Runs::store_runs(
            run, [&](int own) { return typename Runs::Filled(__shfl_sync(0xffffffff, bias, own * Runs::own_lanes)); });
      }
    }
  }
};

}  // namespace tconv::device
// ---- panel/store.cuh
// Which epilogue stores the sums of the panel kernel: runs of outputs, or channels last, channels.


namespace tconv::device {

template <GemmConfig C, class Tables>
using PanelEpilogue = typename Select<C.channel_rows, PanelChannelStore<C, Tables, typename PanelRoles<C>::Member>,
                                      PanelStore<C, Tables>>::Type;

}  // namespace tconv::device
// ---- panel/split_products.cuh
// Products of the panel kernel where a number is two operands, a head and a remainder: fp32 split into TF32 numbers or
// into scaled fp16 ones.
//
// A few products are summed by the tensor core, which truncates, and added to the others by the fp32 adder, which
// rounds to nearest. Few, since truncation has a direction; not one at a time, since every addition rounds. While the
// sums of one product are added, the next one is formed.


namespace tconv::device {

template <GemmConfig C, class Tables, class Wgmma>
struct PanelSplitProducts {
  static constexpr int octets = substeps_of(C), group_steps = C.steps_per_slab, part_steps = split_steps(C);
  static constexpr int position_tiles = C.position_tiles, registers = C.panel_columns / 2;
  static constexpr bool scaled = scales(C.math);
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  using Sums = PanelSums<C>;
  using Operands = PanelOperands<C, Tables>;
  using Weights = PanelWeights<C, Tables>;

  __device__ static void multiply(Sums& sum, const ForwardParams& p, const Tile& tile, const Shared& shared,
                                  const typename Operands::First& first, Weights& weights,
                                  Ring<C.panel_stages>& panel) {
    using Offsets = typename Operands::Offsets;
    const int steps = Tables::steps(tile.type);
    const int entry = Tables::first_entry(tile.type);
    clear_sums<C>(sum);
    if (steps == 0) return;
    const Offsets of_tile(entry);
    Unscale of_weights[2];  // of each of the thread's two rows
    if constexpr (scaled) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (const int channel = PanelEpilogue<C, Tables>::channel_of_half(tile, half); channel >= 0)
          of_weights[half] = Unscale(p.scales[channel]);
    }
    PanelWalk<C, Tables> walk(p, tile);
#pragma unroll 1
    for (int chunk = first_chunk(C, tile.split); chunk < first_chunk(C, tile.split + 1);
         walk.advance(chunk), panel.advance()) {
      ptx::barrier_wait(shared.panel_full(panel.slot), panel.parity);
      float scale[2];  // of products, undone
      if constexpr (scaled) {
        const float of_x = power_of_two(undone(PanelScaledSums<C>::scale_of(shared, panel).x));
        scale[0] = of_x * of_weights[0].of_part, scale[1] = of_x * of_weights[1].of_part;
      }
      Operands::each_group(walk, steps, [&](int step) {
        const typename Operands::Group operands(first, Operands::slab_place_of(weights, chunk, step), panel.slot,
                                                Operands::one_group_a_chunk() ? of_tile : Offsets(entry + step));
        if constexpr (!Operands::resident)
          ptx::barrier_wait(shared.weights_full(Roles::block(), weights.next.slot), weights.next.parity);
        constexpr int buffers = split_buffers(C);
        constexpr int parts = ceil_div(group_steps, part_steps) * position_tiles;
        float part[buffers][registers];
#pragma unroll
        for (int i = 0; i < parts + buffers - 1; ++i) {
          if (i < parts) issue(part[i % buffers], operands, i / position_tiles * part_steps, i % position_tiles);
          if (const int done = i - (buffers - 1); done >= 0) {
            if (i < parts && buffers == 2)
              ptx::wgmma_wait<1>();
            else
              ptx::wgmma_wait<0>();
#pragma unroll
            for (int r = 0; r < registers; ++r) {
              float& to = sum[done % position_tiles][r];
              const float value = part[done % buffers][r];
              to = scaled ? fmaf(value, scale[r / 2 % 2], to) : to + value;
            }
          }
        }
        weights.refill(weights.next);
        weights.next.advance();
      });
      if constexpr (scaled) __syncwarp();  // all lanes have read the scale
      release(shared.panel_empty(panel.slot));
    }
    if constexpr (scaled) {
#pragma unroll
      for (int t = 0; t < position_tiles; ++t)
#pragma unroll
        for (int r = 0; r < registers; ++r) sum[t][r] *= of_weights[r / 2 % 2].of_sum;
    }
  }

 private:
  /// The three products of heads and remainders, the small ones first: they are lost in nothing yet.
  __device__ static void issue(float (&part)[registers], const typename Operands::Group& operands, int first,
                               int tile) {
    ptx::wgmma_fence();
#pragma unroll
    for (int product = 0; product < 3; ++product)
#pragma unroll
      for (int s = first; s < min_of(first + part_steps, group_steps); ++s)
#pragma unroll
        for (int o = 0; o < octets; ++o)
          Wgmma::multiply(
              part,
              Operands::further(operands.weights, Operands::weights_at(o, s) + (product == 0 ? row_step_bytes(C) : 0)),
              Operands::further(operands.x[s], Operands::x_at(o, tile) + (product == 1 ? panel_part_bytes(C) : 0)),
              product + s - first + o > 0);
    ptx::wgmma_commit();
  }
};

}  // namespace tconv::device
// ---- sizes/march.cuh
// Sizes of the march kernel (march_gemm.cuh): its sums, what it stages, shared memory and registers. Panels of x are
// those of the panel kernel, of one slice of x each (sizes/panel.cuh).


namespace tconv::device {

/// The configuration of one slice of x: a box that is one slice deep.
constexpr GemmConfig slice_of(GemmConfig c) {
  c.box.d = 1;
  return c;
}

/// Output channels of a block: the rows of a slot of sums.
constexpr int slot_rows(const GemmConfig& c) { return c.rows / c.march; }
/// Positions of a slice that a block multiplies, in the order of the panel, halo included.
constexpr int march_positions(const GemmConfig& c) { return panel_rows * c.position_tiles * c.box_parts; }
/// The fewest that a box takes: from its first position to its last.
constexpr int march_span(const GemmConfig& c) { return (c.box.h - 1) * x_extent(slice_of(c)).w + c.box.w; }

// Staged outputs: of each channel one run of whole rows, or one for each row.
constexpr bool joins_rows(const GemmConfig& c) { return c.run_rows > 1; }
constexpr int march_runs(const GemmConfig& c) { return ceil_div(c.box.h, c.run_rows); }
/// Elements from one to the next: runs begin as they do in memory, up to a vector later.
constexpr int march_run_pitch(const GemmConfig& c) {
  const int v = store_vector(c);
  return round_up(c.run_rows * c.box.w + v - 1, v);
}
/// And from a channel to the next. A warp stages eight positions of four pairs of channels at once.
constexpr int march_channel_pitch(const GemmConfig& c) {
  const int elements = march_runs(c) * march_run_pitch(c), unit = element_bytes(c) == 2 ? 32 : 16;
  const int residue = element_bytes(c) == 2 ? 8 : 4;
  return elements + ((residue - elements) % unit + unit) % unit;
}
constexpr int march_staged_bytes(const GemmConfig& c) {
  return round_up(slot_rows(c) * march_channel_pitch(c) * element_bytes(c), 128);
}

/// Shared memory: weights, panels, staged outputs, bias and scale of each channel, barriers.
constexpr int march_barriers(const GemmConfig& c) { return 1 + 2 * c.panel_stages + 2 * c.stage_buffers; }
constexpr int march_shared_bytes(const GemmConfig& c) {
  return 128 + resident_bytes(c) + c.panel_stages * panel_bytes(slice_of(c)) + c.stage_buffers * march_staged_bytes(c) +
         slot_rows(c) * 8 + march_barriers(c) * 8;
}

// Registers of a thread: each kind of warpgroup asks for its own.
constexpr int march_threads(const GemmConfig& c) { return warpgroup_size * (c.loaders + 1 + c.box_parts); }
constexpr int march_entry_registers(const GemmConfig& c) { return min_of(65536 / march_threads(c) / 8 * 8, 248); }
constexpr int march_loading_registers(const GemmConfig& c) { return round_up(filling_registers(slice_of(c)) + 40, 8); }
constexpr int march_storing_registers = 48;
constexpr int march_multiplying_registers(const GemmConfig& c) {
  const int left = march_entry_registers(c) * (c.loaders + 1 + c.box_parts) - c.loaders * march_loading_registers(c) -
                   march_storing_registers;
  return min_of(left / c.box_parts / 8 * 8, 240);
}

}  // namespace tconv::device
// ---- sizes/warpgroup.cuh
// Sizes of the warpgroup kernel (warpgroup_gemm.cuh). Columns of the product are rows (phase, channel), its rows are
// positions.


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
// ---- sizes/block.cuh
// What a block of a kernel of warpgroups takes of a multiprocessor: shared memory and registers.


namespace tconv::device {

constexpr int team_shared_bytes(const GemmConfig& c) {
  if (c.march) return march_shared_bytes(c);
  return c.panel_columns ? panel_shared_bytes(c) : warpgroup_shared_bytes(c);
}

// Registers: a block starts with the same number for all its threads; loading warpgroups give back what they do
// not need. Asking for more than there is would wait for ever.
constexpr int entry_registers(const GemmConfig& c) {
  return min_of(65536 / (c.blocks_per_sm * warpgroup_size * warpgroups_of(c)) / 8 * 8, 248);
}
constexpr int loading_registers(const GemmConfig& c) {
  if (copies_x(c)) return c.turned_once ? 56 : 40;
  return c.panel_columns ? round_up(filling_registers(c) + 40, 8) : 64;
}
constexpr int multiplying_registers(const GemmConfig& c) {
  const int all = warpgroups_of(c), multiplying = multiplying_warpgroups(c);
  const int left = entry_registers(c) * all - (all - multiplying) * loading_registers(c);
  return min_of(left / multiplying / 8 * 8, 240);
}

}  // namespace tconv::device
// ---- panel_gemm.cuh
// The panel kernel (sm_90a): the product on wgmma, with both operands in shared memory.
//
//   rows     64 (phase, output channel) rows of the plan
//   columns  positions, `panel_columns` for each product, `position_tiles` products side by side
//   depth    for each chunk of channels, for each step (a tap's shift): octets of channel words
//
// x passes through registers into panels (tiles/x_panel.cuh), once for all taps. Products then take nothing but
// descriptors: a wide product reads shared memory less than the tensor cores work.
//
// A block has one or two teams; a team is a warpgroup that fills panels, and one that multiplies and stores. While a
// team stores, or its x is under way, the tensor cores work for the other one, or for another block; where they are in
// one block, they multiply in turns. Or a team has several that multiply and read the same panels: each a channel block
// of its own, so that x is fetched and turned once for them; or parts of one box, so that weights are fetched once.
//
// Or x was turned into panels before, by a kernel of its own (turn_x.cuh), and one thread copies them: where many
// channel blocks read the same x, it is turned once for all. Or no tap reads a neighbour, and x needs no turning: in 16
// bits wgmma takes it as it lies, and one thread copies that by a tensor map.
//
// Where there are few tiles and many channels, tiles share the depth of a sum: each leaves its part in memory, and the
// last one to come adds them all, always in the same order, and stores. Or two are a cluster, and each adds half.
//
// Weights stay in shared memory where those of one row block fit, and the block keeps to that row block; elsewhere
// each team streams them through a ring.
//
// C is the configuration (gemm_config.cuh), Tables the generated tables, Wgmma the instruction (codegen.cpp).


namespace tconv::device {

template <GemmConfig C, class Tables, class Wgmma>
struct PanelGemm {
  static constexpr int threads = warpgroup_size * warpgroups_of(C);
  static_assert(C.rows <= panel_rows);
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  using Weights = PanelWeights<C, Tables>;
  using Store = PanelEpilogue<C, Tables>;
  using Schedule = TeamSchedule<C, Tables>;
  using Fill = PanelFill<C, Roles, Shared, Schedule>;

  __device__ static void run(const ForwardParams& p) {
    ptx::let_next_begin();
    // Not a function of its own: the compiler would give everything behind it other registers.
    if (threadIdx.x == 0) {
      constexpr int warps = warpgroup_size / warp_size;
      for (int team = 0; team < C.teams; ++team) {
        const Shared shared(team);
        for (int i = 0; i < C.panel_stages; ++i) {
          ptx::barrier_init(shared.panel_full(i), copies_x(C) ? 1 : panel_loaders(C) / warp_size);
          ptx::barrier_init(shared.panel_empty(i), warps * members_of(C));
        }
        for (int block = 0; block < C.team_blocks; ++block)
          for (int i = 0; i < C.stages; ++i) {
            ptx::barrier_init(shared.weights_full(block, i), 1);
            ptx::barrier_init(shared.weights_empty(block, i), warps * C.box_parts);
          }
      }
      ptx::barrier_init(Shared::weights_resident(), 1);
      for (int i = 0; C.in_turns && i < multiplying_warpgroups(C); ++i) ptx::barrier_init(Shared::turn(i), warps);
      for (int i = 0; i < clustered_barriers(C); ++i) ptx::barrier_init(Shared::sums_full(i), warp_size);
      ptx::barrier_init_fence();
    }
    if constexpr (C.clustered)
      ptx::cluster_sync();
    else
      __syncthreads();
    const Shared shared(Roles::team());
    if (Roles::Loaders::index() < Roles::loaders) {
      ptx::registers_decrease<loading_registers(C)>();
      load(p, shared);
    } else {
      if constexpr (multiplying_registers(C) > entry_registers(C)) ptx::registers_increase<multiplying_registers(C)>();
      multiply_and_store(p, shared);
    }
    if constexpr (C.clustered) {  // a block that others write to does not end
      __syncwarp();
      ptx::cluster_sync();
    }
  }

  __device__ static void load(const ForwardParams& p, const Shared& shared) {
    constexpr bool resident = C.resident_steps > 0;
    if (resident && threadIdx.x == 0)
      load_resident_weights<C, Tables>(p, shared.resident_weights, Shared::weights_resident());
    if constexpr (copies_x(C)) {
      // A warp for x, and one for the weights of each channel block.
      static_assert(C.team_blocks <= 3 && C.loaders == 1);
      const int warp = Roles::Loaders::index() / warp_size;
      if (lane_index() == 0 && warp == 0) {
        if constexpr (C.mapped)
          Fill::copy_mapped_x(static_cast<const MappedParams&>(p), shared);
        else
          Fill::copy_x(p, shared);
      }
      if (lane_index() == 0 && !resident && warp > 0 && warp <= C.team_blocks)
        CopiedWeights<C, Tables>::copy(p, shared, warp - 1);
    } else {
      Fill::load_x(p, shared);
    }
  }

  /// The tile of a member of the team.
  __device__ static Tile tile_of(const Schedule& schedule, const ForwardParams& p) {
    Tile tile = schedule.tile(p);
    tile.channel_block += Roles::block();
    return tile;
  }

  __device__ static void multiply_and_store(const ForwardParams& p, const Shared& shared) {
    constexpr int warps = warpgroup_size / warp_size;
    unsigned char* const memory =
        shared.store + (Roles::member() * warps + Roles::thread() / warp_size) * panel_store_bytes(C);
    Weights weights(p, shared);
    Ring<C.panel_stages> panel;
    PanelTurns<C> turns;
    SumsOfCluster<C> added;
    const typename PanelOperands<C, Tables>::First first(shared);
    // Before anything but parameters and packed weights is read, and before outputs are written (pack.cuh).
    ptx::wait_for_previous();
    for (Schedule schedule(p, Roles::team()); !schedule.done(); schedule.advance()) {
      const Tile tile = tile_of(schedule, p);
      typename Store::Outputs outputs(p, tile);
      if constexpr (C.fills) {
        static_assert(!C.in_turns);
        if (Tables::steps(tile.type) == 0) {
          Store::fill(p, tile, outputs, Roles::part() * C.position_tiles);
          continue;
        }
      }
      PanelSums<C> sum;
      if (C.in_turns && Tables::steps(tile.type) > 0)  // a turn is for who has what it takes
        ptx::barrier_wait(shared.panel_full(panel.slot), panel.parity);
      turns.wait();
      if constexpr (splits(C.math)) {
        PanelSplitProducts<C, Tables, Wgmma>::multiply(sum, p, tile, shared, first, weights, panel);
        turns.pass();
      } else {
        PanelProducts<C, Tables, Wgmma>::multiply(sum, outputs.of_half, PanelWalk<C, Tables>(p, tile), tile, shared,
                                                  first, weights, panel, turns);
      }
      if constexpr (C.clustered) {
        added.add(tile, sum, memory);
      } else if constexpr (C.depth_splits > 1) {
        unsigned char* const first = shared.store + Roles::member() * warps * panel_store_bytes(C);
        if (!PartialSums<C, Tables>::add(p, tile, sum, reinterpret_cast<u32*>(first))) continue;
      }
      Store::store(p, tile, memory, outputs, sum, Roles::part() * C.position_tiles);
    }
  }
};

}  // namespace tconv::device
// ---- weight_scales.cuh
// The scale of the weights of each output channel, for operands that have to be scaled (mma/scale.cuh): what undoes it.
// A block takes a channel.


namespace tconv::device {

__device__ inline void find_weight_scales(const ScaleParams& p) {
  ptx::begin_after_previous();
  extern __shared__ unsigned shared[];
  const int group = int(blockIdx.x) / p.group_out, channel = int(blockIdx.x) % p.group_out;
  const float* const weight = p.weight + i64(group) * p.group_in * p.stride_in + channel * p.stride_out;
  const int taps = volume(p.kernel);
  float largest = 0;
  for (i64 i = threadIdx.x; i < i64(p.group_in) * taps; i += blockDim.x) {
    const int tap = int(i % taps), w = tap % p.kernel.w, h = tap / p.kernel.w % p.kernel.h;
    const int d = tap / p.kernel.w / p.kernel.h;
    largest = fmaxf(
        largest, finite_magnitude(weight[i / taps * p.stride_in + d * p.stride_d + h * p.stride_h + w * p.stride_w]));
  }
  const u32 of_warp = __reduce_max_sync(0xffffffff, __float_as_uint(largest));
  if (lane_index() == 0) shared[warp_index()] = of_warp;
  __syncthreads();
  if (threadIdx.x > 0) return;
  u32 all = 0;
  for (int i = 0; i < int(blockDim.x) / warp_size; ++i) all = all > shared[i] ? all : shared[i];
  p.scales[blockIdx.x] = power_of_two(undone(scale_for(all)));
}

}  // namespace tconv::device
// ---- direct_config.cuh
// The configuration of the direct kernels: few channels per group, where a layer is a copy with a few
// multiply-adds. Host and device compile this file; batch and lengths are not in it.


namespace tconv::device {

struct DirectConfig {
  // The layer.
  int groups, group_in, group_out;
  Int3 kernel, stride, padding, dilation;

  // Memory.
  bool channels_last;  // lanes run over channels (direct_channels.cuh), else over positions (direct_rows.cuh)
  bool dense_weight;   // in the order in, out, depth, height, width
  int x_vector;        // elements of one load
  int y_vector;        // elements of one store
  bool staged;         // rows: outputs pass through shared memory, else a thread's are one aligned vector

  // What one thread computes: all phases of so many positions along the width and the height.
  int positions;
  int rows;      // 0: one row of outputs, whose taps along the height are found at run time
  int channels;  // output channels; groups where lanes run over channels
  int slots;     // channels last: threads side by side along the channels
  int blocks_per_sm;

  constexpr bool operator==(const DirectConfig&) const = default;
};

constexpr int direct_threads = 256;

/// The largest shift of the input along a dimension.
constexpr int reach_of(int kernel, int stride, int dilation) { return (kernel - 1) * dilation / stride; }

/// Rows of outputs of a thread.
constexpr int out_rows_of(const DirectConfig& c) { return c.rows ? c.rows * c.stride.h : 1; }

/// Channels last keeps the weights of the block's channels in shared memory.
constexpr int direct_shared_bytes(const DirectConfig& c, int accumulator_bytes) {
  return c.channels_last ? volume(c.kernel) * c.group_in * c.slots * c.channels * c.group_out * accumulator_bytes : 0;
}

}  // namespace tconv::device
// ---- launch_rules.cuh
// How a call is cut into tiles and launched, for any batch and any length. For the host: the engine compiles this
// file, and exported layers carry it.


namespace tconv::device {

struct Launch {
  unsigned blocks, threads;
  bool early = true;  // may begin while the kernel before ends, where the device can
};

constexpr long long at_most(long long value, long long limit) { return value < limit ? value : limit; }
constexpr long long between(long long low, long long value, long long high) {
  return value < low ? low : at_most(value, high);
}
constexpr long long parts_of(long long whole, long long part) { return (whole + part - 1) / part; }

/// Positions q of one dimension that have an output, from the first one of them.
constexpr int positions_from(int first, long long out, int stride, int padding) {
  return int((out - 1 + padding - first_phase(first, stride, padding)) / stride - first + 1);
}
constexpr int positions_of(long long out, int stride, int padding) {
  return positions_from(padding / stride, out, stride, padding);
}

// ---- Implicit GEMM -------------------------------------------------------------------------------

constexpr Int3 positions_of(const GemmConfig& c, Int3 out) {
  return {positions_from(c.first_position.d, out.d, c.stride.d, c.padding.d),
          positions_from(c.first_position.h, out.h, c.stride.h, c.padding.h),
          positions_from(c.first_position.w, out.w, c.stride.w, c.padding.w)};
}

/// The boxes that cover the positions of an output.
constexpr Int3 boxes_of(const GemmConfig& c, Int3 out) {
  const Int3 positions = positions_of(c, out);
  // Boxes that overlap along the width: the last one ends behind the last position.
  const int advance = box_advance(c), overlap = c.box.w - advance;
  return {ceil_div(positions.d, c.box.d), ceil_div(positions.h, c.box.h),
          positions.w <= c.box.w ? 1 : ceil_div(positions.w - overlap, advance)};
}

/// Sizes and how the work is cut; pointers and strides are the caller's to fill in.
inline ForwardParams forward_params(const GemmConfig& c, long long batch, Int3 in, Int3 out) {
  ForwardParams p{};
  p.in = in, p.out = out, p.batch = int(batch);
  p.boxes = boxes_of(c, out);
  p.tiles = int(parts_of(batch, c.images) * block_sets_of(c) * volume(p.boxes) * c.depth_splits);
  return p;
}

/// As many blocks as the device holds at once: they take turns at the tiles. A block that keeps its weights
/// takes tiles of one row block alone.
constexpr long long blocks_of(const GemmConfig& c, long long tiles, int multiprocessors) {
  const long long most = (long long)multiprocessors * c.blocks_per_sm;
  if (!c.teams) return at_most(tiles, most);
  if (c.clustered) return at_most(tiles, most / c.depth_splits * c.depth_splits);
  if (c.resident_steps == 0) return at_most(parts_of(tiles, c.teams), most);
  const long long sets = block_sets_of(c);
  return sets * between(1, most / sets, parts_of(tiles / sets, c.teams));
}

constexpr Launch launch_of(const GemmConfig& c, const ForwardParams& p, int multiprocessors) {
  return {unsigned(blocks_of(c, p.tiles, multiprocessors)),
          unsigned(c.teams ? warpgroup_size * warpgroups_of(c) : threads_of(c))};
}

// ---- Mapped x ------------------------------------------------------------------------------------

inline MapDescription map_description(const GemmConfig& c, const ForwardParams& p) {
  MapDescription d{};
  d.x = p.x, d.bf16 = c.math == Math::bf16;
  d.sizes[0] = volume(p.in), d.sizes[1] = c.group_in, d.sizes[2] = c.groups, d.sizes[3] = p.batch;
  d.strides[0] = 2 * p.xs.c, d.strides[1] = d.strides[0] * c.group_in;
  d.strides[2] = p.batch > 1 ? 2 * p.xs.n : d.strides[1] * c.groups;
  d.copied[0] = mapped_positions, d.copied[1] = mapped_channels(c);
  return d;
}

// ---- Turned x ------------------------------------------------------------------------------------

/// `vectors`: channels are last, and those of a slice are one aligned vector.
constexpr TurnLoad turn_load(const GemmConfig& c, bool vectors) {
  return vectors ? TurnLoad::vector : c.x_vector > 1 ? TurnLoad::pair : TurnLoad::element;
}
/// What turns the x of a call; its pointers, strides and sizes are in `p`.
inline TurnParams turn_params(const GemmConfig& c, const ForwardParams& p) {
  TurnParams t{};
  t.x = p.x, t.xs = p.xs, t.in = p.in, t.batch = p.batch, t.boxes = p.boxes;
  t.start = {c.first_position.d - c.reach.d, c.first_position.h - c.reach.h,
             c.x_phases * (c.first_position.w - c.reach.w - x_lead(c))};
  t.advance = {c.box.d, c.box.h, c.x_phases * box_advance(c)};
  const Int3 extent = turned_extent(c, p.boxes);
  // What is turned together: the x tile of a box, or once for all boxes, what those of all of them read.
  int inputs = x_inputs(c);
  if (c.turned_once) t.boxes.d = 1, t.boxes.h = 1, inputs = c.x_phases * volume(extent);
  t.row_inputs = c.x_phases * extent.w, t.rows = extent.h, t.depth = extent.d;
  t.images = c.images, t.beside = rows_beside(c), t.tile_inputs = inputs, t.unit = c.x_vector;
  t.tile_units = inputs / t.unit;
  t.x_phases = c.x_phases, t.phase_stride = c.turned_once ? volume(extent) : x_phase_stride(c);
  t.group_in = c.group_in, t.chunks = chunks_of(c), t.all_chunks = c.groups * chunks_of(c);
  t.slices = panel_slices(c);
  t.slice_stride = c.turned_once ? inputs : panel_slice_stride(c);
  t.panel_stride = c.turned_once ? weight_parts(c) * t.slices * inputs : panel_bytes(c) / 16;
  t.scaled = scales(c.math), t.scale_place = panel_scale_place(c) / 16;
  t.inputs = parts_of(p.batch, c.images) * volume(t.boxes) * inputs;
  constexpr int little = 256 * turn_threads;
  t.little = t.inputs / t.unit * t.all_chunks.by * parts_of(t.slices, turn_depth) <= little;
  // Where there is little to do, many threads wait for a few loads each; elsewhere a thread has many under way.
  const bool fits_threads = !t.scaled || t.tile_units.by * t.slices <= most_turn_threads(1);
  t.item_slices = t.little && fits_threads ? 1 : turn_depth;
  t.parts = parts_of(t.slices, t.item_slices), t.all_parts = t.all_chunks.by * t.parts.by;
  const int items = t.tile_units.by * t.parts.by;  // of a panel
  t.threads = t.scaled ? min_of(round_up(items, warp_size), most_turn_threads(t.item_slices)) : turn_threads;
  return t;
}
/// Bytes of turned x; and of what follows it where tiles share sums: their parts, then counts of them.
inline long long turned_bytes(const TurnParams& t) {
  return t.inputs / t.tile_inputs.by * t.all_chunks.by * t.panel_stride * 16;
}
inline long long partials_bytes(const GemmConfig& c, const ForwardParams& p) {
  return (long long)(p.tiles / c.depth_splits) * partial_bytes(c);
}
inline int arrival_count(const GemmConfig& c, const ForwardParams& p) {
  return c.depth_splits > 1 && !c.clustered ? p.tiles / c.depth_splits * members_of(c) : 0;
}
/// All of them, and how they lie one after the other in `workspace`, which is aligned to 256 bytes.
inline long long turned_workspace_bytes(const GemmConfig& c, const ForwardParams& p) {
  return parts_of(turned_bytes(turn_params(c, p)), 256) * 256 + partials_bytes(c, p) + 4LL * arrival_count(c, p);
}
inline void place_in_workspace(const GemmConfig& c, unsigned char* workspace, ForwardParams& p, TurnParams& t) {
  t.turned = workspace, p.x = workspace;
  unsigned char* const partials = workspace + parts_of(turned_bytes(t), 256) * 256;
  p.partials = reinterpret_cast<float*>(partials);
  p.arrivals = t.arrivals = reinterpret_cast<unsigned*>(partials + partials_bytes(c, p));
  t.arrival_count = arrival_count(c, p);
}

/// Many blocks that begin early would all go to the few multiprocessors with room beside the kernel before.
constexpr Launch launch_of(const TurnParams& p, int multiprocessors) {
  const long long items = p.scaled ? p.inputs / p.tile_inputs.by * p.all_chunks.by
                                   : parts_of(p.inputs / p.unit, p.threads) * p.all_parts.by;
  return {unsigned(between(1, items, multiprocessors * 32)), unsigned(p.threads), p.little};
}

constexpr Launch launch_of(const PackParams& p, int multiprocessors) {
  return {unsigned(between(1, parts_of(p.words, 2048), multiprocessors * 16)), 256};  // eight pieces, see pack.cuh
}

constexpr int scale_threads = 256;
constexpr Launch launch_of(const ScaleParams& p) { return {unsigned(p.groups * p.group_out), scale_threads}; }

/// Shared memory of kernels that look for the largest of a block's numbers: a word for each warp.
constexpr int scale_shared_bytes = scale_threads / warp_size * 4;
constexpr int turn_shared_bytes(Math math) { return scales(math) ? most_turn_threads(1) / warp_size * 4 : 0; }

// ---- Direct --------------------------------------------------------------------------------------

constexpr int floor_div(int a, int b) { return a / b - (a % b < 0); }

/// How a warp covers a row with 2^bits lanes: one tile where the row fits, none where it cannot.
struct RowCut {
  long long tiles;
  int first_position, tile_positions;
};

/// `vector`: elements of 16 bytes.
constexpr RowCut cut_row(const DirectConfig& c, int vector, long long out, int bits) {
  const int stride = c.stride.w, padding = c.padding.w, positions = c.positions << bits;
  if (!c.staged) return {parts_of(out, (long long)positions * stride), 0, positions};
  const int most_skew = vector - 1;  // outputs of the first vector of a row that belong to the row before
  const int first = padding / stride / c.x_vector * c.x_vector;
  const long long last = (out - 1 + padding) / stride;
  if (first + positions > last && (long long)positions * stride >= out + most_skew) return {1, first, positions};
  // A tile begins up to `most_skew` outputs before its share of the row's vectors.
  const int start = floor_div(floor_div(padding - most_skew, stride), c.x_vector) * c.x_vector;
  const int slack = floor_div(padding - 1, stride) + 1 - start;
  const int whole = vector / gcd(vector, stride), unit = whole / gcd(whole, c.x_vector) * c.x_vector;
  const int share = (positions - slack) / unit * unit;
  if (share <= 0) return {0, 0, 0};
  return {parts_of(out + most_skew, (long long)share * stride), start, share};
}

/// The cut that leaves the fewest lanes idle; rows side by side fill a warp. Short tiles must save a quarter of
/// them: their runs are short, too.
inline void cut_rows(const DirectConfig& c, int vector, DirectParams& p) {
  long long best = 0;
  for (int bits = 5; bits >= 0; --bits) {
    const RowCut cut = cut_row(c, vector, p.out.w, bits);
    if (cut.tiles == 0 || (best != 0 && (cut.tiles << bits) * 4 > best * 3)) continue;
    best = cut.tiles << bits;
    p.tiles = int(cut.tiles), p.lane_bits = bits;
    p.first_position = cut.first_position, p.tile_positions = cut.tile_positions;
  }
}

/// Sizes and how the work is cut; pointers and strides are the caller's to fill in.
inline DirectParams direct_params(const DirectConfig& c, int element_bytes, long long batch, Int3 in, Int3 out) {
  DirectParams p{};
  p.in = in, p.out = out;
  p.row_blocks = c.rows == 0 ? out.h : ceil_div(positions_of(out.h, c.stride.h, c.padding.h), c.rows);
  p.rows = batch * out.d * p.row_blocks;
  if (c.channels_last) {
    p.tiles = ceil_div(positions_of(out.w, c.stride.w, c.padding.w), c.positions);
    p.items = p.rows * p.tiles;
  } else {
    cut_rows(c, 16 / element_bytes, p);
    p.rows *= (long long)c.groups * ceil_div(c.group_out, c.channels);
    p.items = parts_of(p.rows, 32 >> p.lane_bits) * p.tiles;
  }
  return p;
}

/// Enough blocks for every multiprocessor to be full several times over; more would only begin more often.
constexpr Launch launch_of(const DirectConfig& c, const DirectParams& p, int multiprocessors) {
  const long long most = multiprocessors * 32;
  if (!c.channels_last) return {unsigned(between(1, parts_of(p.items, 8), most)), direct_threads};
  const long long slabs = ceil_div(c.groups, c.slots * c.channels), places = direct_threads / c.slots;
  const long long share = between(1, most / slabs, most);
  return {unsigned(slabs * between(1, parts_of(p.items, places), share)), direct_threads};
}

// ---- Generic -------------------------------------------------------------------------------------

constexpr Launch launch_of(const GenericParams& p, long long out_channels, int multiprocessors) {
  const long long outputs = p.batch * out_channels * p.out_d * p.out_h * p.out_w;
  return {unsigned(between(1, parts_of(outputs, 256), multiprocessors * 128)), 256};
}

}  // namespace tconv::device

// ---- The kernels of this layer ----
#if TCONV_SM90
namespace tconv::device::selected {
constexpr long long packed_words = 3136;
namespace packing {

constexpr GemmConfig config{
    .math = Math::half,
    .groups = 1, .group_in = 32, .group_out = 64,
    .kernel = {1, 1, 3}, .stride = {1, 1, 2}, .padding = {0, 0, 1}, .dilation = {1, 1, 2},
    .first_position = {0, 0, 0}, .reach = {0, 0, 2},
    .channel_phases = {1, 0, 0, 0},
    .x_channels_last = false, .y_rows = false, .x_vector = 1,
    .types = 1, .channel_blocks = 1, .channels_per_block = 64, .x_phases = 1,
    .phase_major = false, .width_phases = 1, .width_slots = 1, .line_phases = 1, .run_phases = 1, .row_pairs = false, .stage_group_tiles = 1, .stage_group_lines = 16, .masked = false,
    .box = {1, 1, 8}, .warps_m = 1, .warps_n = 1, .tiles_m = 8, .tiles_n = 1,
    .chunk_words = 8, .steps_per_slab = 1, .stages = 2, .x_stages = 2, .octet_group = 2,
    .resident_steps = 0, .blocks_per_sm = 1,
    .teams = 1, .rows = 64, .position_tiles = 0, .images = 1, .window = 1,
    .stage_rows = 0, .stage_buffers = 0, .round_on_load = false, .y_channels = 0, .channel_rows = false,
    .panel_columns = 0, .panel_stages = 0, .product_rows = 0, .whole_rows = false, .run_rows = 1, .team_blocks = 1, .box_parts = 1, .loaders = 1, .fill_buffers = 0, .panel_flat = false,
    .turned = false, .turned_once = false, .panel_steps = 0, .shared_halo = {0, 0, 0}, .rows_beside = false,
    .mapped = false, .in_turns = false, .fills = false, .depth_splits = 1, .clustered = false, .march = 0};

__constant__ int step_count[] = {
    3,};
__constant__ i64 weight_bases[] = {
    0,};
__constant__ int first_step[] = {
    0,};
__device__ const Int3 low_shifts[] = {
    {0, 0, 0}, {0, 0, 1}, {0, 0, 2},};
__device__ const Int3 high_shifts[] = {
    {0, 0, 0}, {0, 0, 1}, {0, 0, 2},};
struct __align__(16) Row {
  int channel;
  Int3 phase;
};
__device__ const Row all_rows[] = {
    {0, {0, 0, 0}}, {1, {0, 0, 0}}, {2, {0, 0, 0}}, {3, {0, 0, 0}}, {4, {0, 0, 0}}, {5, {0, 0, 0}}, {6, {0, 0, 0}}, {7, {0, 0, 0}}, {8, {0, 0, 0}}, {9, {0, 0, 0}}, {10, {0, 0, 0}}, {11, {0, 0, 0}}, {12, {0, 0, 0}}, {13, {0, 0, 0}}, {14, {0, 0, 0}}, {15, {0, 0, 0}},
    {16, {0, 0, 0}}, {17, {0, 0, 0}}, {18, {0, 0, 0}}, {19, {0, 0, 0}}, {20, {0, 0, 0}}, {21, {0, 0, 0}}, {22, {0, 0, 0}}, {23, {0, 0, 0}}, {24, {0, 0, 0}}, {25, {0, 0, 0}}, {26, {0, 0, 0}}, {27, {0, 0, 0}}, {28, {0, 0, 0}}, {29, {0, 0, 0}}, {30, {0, 0, 0}}, {31, {0, 0, 0}},
    {32, {0, 0, 0}}, {33, {0, 0, 0}}, {34, {0, 0, 0}}, {35, {0, 0, 0}}, {36, {0, 0, 0}}, {37, {0, 0, 0}}, {38, {0, 0, 0}}, {39, {0, 0, 0}}, {40, {0, 0, 0}}, {41, {0, 0, 0}}, {42, {0, 0, 0}}, {43, {0, 0, 0}}, {44, {0, 0, 0}}, {45, {0, 0, 0}}, {46, {0, 0, 0}}, {47, {0, 0, 0}},
    {48, {0, 0, 0}}, {49, {0, 0, 0}}, {50, {0, 0, 0}}, {51, {0, 0, 0}}, {52, {0, 0, 0}}, {53, {0, 0, 0}}, {54, {0, 0, 0}}, {55, {0, 0, 0}}, {56, {0, 0, 0}}, {57, {0, 0, 0}}, {58, {0, 0, 0}}, {59, {0, 0, 0}}, {60, {0, 0, 0}}, {61, {0, 0, 0}}, {62, {0, 0, 0}}, {63, {0, 0, 0}},};

struct Tables {
  __device__ static int steps(int type) { return step_count[type]; }
  __device__ static i64 weight_base(int type) { return weight_bases[type]; }
  __device__ static Int3 step_shift(int type, int step, bool high) {
    return high ? high_shifts[first_step[type] + step] : low_shifts[first_step[type] + step];
  }
  __device__ static Row row(int type, int row) { return all_rows[type * 64 + row]; }
};

__global__ void __launch_bounds__(256) pack(const __grid_constant__ PackParams params) {
  pack_rows<config, Tables>(params);
}

constexpr int shared_bytes = 0;
}  // namespace packing
namespace scaling {

__global__ void __launch_bounds__(256) find(const __grid_constant__ ScaleParams params) {
  find_weight_scales(params);
}

constexpr int shared_bytes = 32;
}  // namespace scaling
constexpr bool scaled = true;  // weights, by output channel: the scales are the last words
/// Launches what finds the scales of weights, where they have any.
template <class Begin>
void find_scales(const Begin& begin) {
  begin(scaling::find, scaling::shared_bytes);
}
/// The kernels that turn x, where it is turned: for one slice at a time, and for several.
struct Turning {
  void (*one)(TurnParams) = nullptr;
  void (*several)(TurnParams) = nullptr;
  int shared_bytes = 0;
};
namespace kernel_0 {

constexpr GemmConfig config{
    .math = Math::half,
    .groups = 1, .group_in = 32, .group_out = 64,
    .kernel = {1, 1, 3}, .stride = {1, 1, 2}, .padding = {0, 0, 1}, .dilation = {1, 1, 2},
    .first_position = {0, 0, 0}, .reach = {0, 0, 2},
    .channel_phases = {1, 0, 0, 0},
    .x_channels_last = false, .y_rows = true, .x_vector = 2,
    .types = 1, .channel_blocks = 1, .channels_per_block = 64, .x_phases = 1,
    .phase_major = false, .width_phases = 1, .width_slots = 1, .line_phases = 1, .run_phases = 1, .row_pairs = false, .stage_group_tiles = 1, .stage_group_lines = 16, .masked = false,
    .box = {1, 1, 160}, .warps_m = 1, .warps_n = 1, .tiles_m = 1, .tiles_n = 1,
    .chunk_words = 8, .steps_per_slab = 3, .stages = 0, .x_stages = 0, .octet_group = 2,
    .resident_steps = 3, .blocks_per_sm = 1,
    .teams = 2, .rows = 64, .position_tiles = 1, .images = 1, .window = 8,
    .stage_rows = 64, .stage_buffers = 1, .round_on_load = false, .y_channels = 1, .channel_rows = false,
    .panel_columns = 160, .panel_stages = 6, .product_rows = 1, .whole_rows = false, .run_rows = 1, .team_blocks = 1, .box_parts = 1, .loaders = 1, .fill_buffers = 2, .panel_flat = false,
    .turned = false, .turned_once = false, .panel_steps = 0, .shared_halo = {0, 0, 0}, .rows_beside = false,
    .mapped = false, .in_turns = true, .fills = false, .depth_splits = 1, .clustered = false, .march = 0};

__constant__ constexpr int step_count[] = {
    3,};
__constant__ constexpr i64 weight_bases[] = {
    0,};
__constant__ constexpr int first_step[] = {
    0,};
__constant__ constexpr int low_offsets[] = {
    step_offset(config, {0, 0, 0}), step_offset(config, {0, 0, 1}), step_offset(config, {0, 0, 2}),};
__constant__ constexpr int high_offsets[] = {
    step_offset(config, {0, 0, 0}), step_offset(config, {0, 0, 1}), step_offset(config, {0, 0, 2}),};
__constant__ constexpr u32 step_masks[] = {
    0u, 0u, 0u,};
__constant__ constexpr u32 line_entries[] = {
    0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 14u, 15u,
    16u, 17u, 18u, 19u, 20u, 21u, 22u, 23u, 24u, 25u, 26u, 27u, 28u, 29u, 30u, 31u,
    32u, 33u, 34u, 35u, 36u, 37u, 38u, 39u, 40u, 41u, 42u, 43u, 44u, 45u, 46u, 47u,
    48u, 49u, 50u, 51u, 52u, 53u, 54u, 55u, 56u, 57u, 58u, 59u, 60u, 61u, 62u, 63u,};

struct Tables {
  __device__ static constexpr int steps(int type) { return step_count[type]; }
  __device__ static constexpr i64 weight_base(int type) { return weight_bases[type]; }
  __device__ static constexpr int first_entry(int type) { return first_step[type]; }
  __device__ static constexpr int low_offset(int entry) { return low_offsets[entry]; }
  __device__ static constexpr int high_offset(int entry) { return high_offsets[entry]; }
  __device__ static constexpr u32 mask(int entry) { return step_masks[entry]; }
  __device__ static constexpr u32 line(int type, int line) { return line_entries[type * 64 + line]; }
};

struct Wgmma {
  /// d = a·b, or d += a·b where `add`.
  __device__ static void multiply(float (&d)[80], u64 a, u64 b, bool add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %82, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n160k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
        "}, %80, %81, p, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
          "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
        : "l"(a), "l"(b), "r"(int(add)));
  }
};

using Kernel = PanelGemm<config, Tables, Wgmma>;

__global__ void __launch_bounds__(Kernel::threads, config.blocks_per_sm)
    forward(const __grid_constant__ ForwardParams params) {
  Kernel::run(params);
}

constexpr int shared_bytes = 159576;
}  // namespace kernel_0
namespace kernel_1 {

constexpr GemmConfig config{
    .math = Math::half,
    .groups = 1, .group_in = 32, .group_out = 64,
    .kernel = {1, 1, 3}, .stride = {1, 1, 2}, .padding = {0, 0, 1}, .dilation = {1, 1, 2},
    .first_position = {0, 0, 0}, .reach = {0, 0, 2},
    .channel_phases = {1, 0, 0, 0},
    .x_channels_last = false, .y_rows = true, .x_vector = 1,
    .types = 1, .channel_blocks = 1, .channels_per_block = 64, .x_phases = 1,
    .phase_major = false, .width_phases = 1, .width_slots = 1, .line_phases = 1, .run_phases = 1, .row_pairs = false, .stage_group_tiles = 1, .stage_group_lines = 16, .masked = false,
    .box = {1, 1, 160}, .warps_m = 1, .warps_n = 1, .tiles_m = 1, .tiles_n = 1,
    .chunk_words = 8, .steps_per_slab = 3, .stages = 0, .x_stages = 0, .octet_group = 2,
    .resident_steps = 3, .blocks_per_sm = 1,
    .teams = 2, .rows = 64, .position_tiles = 1, .images = 1, .window = 8,
    .stage_rows = 64, .stage_buffers = 1, .round_on_load = false, .y_channels = 1, .channel_rows = false,
    .panel_columns = 160, .panel_stages = 6, .product_rows = 1, .whole_rows = false, .run_rows = 1, .team_blocks = 1, .box_parts = 1, .loaders = 1, .fill_buffers = 2, .panel_flat = false,
    .turned = false, .turned_once = false, .panel_steps = 0, .shared_halo = {0, 0, 0}, .rows_beside = false,
    .mapped = false, .in_turns = true, .fills = false, .depth_splits = 1, .clustered = false, .march = 0};

__constant__ constexpr int step_count[] = {
    3,};
__constant__ constexpr i64 weight_bases[] = {
    0,};
__constant__ constexpr int first_step[] = {
    0,};
__constant__ constexpr int low_offsets[] = {
    step_offset(config, {0, 0, 0}), step_offset(config, {0, 0, 1}), step_offset(config, {0, 0, 2}),};
__constant__ constexpr int high_offsets[] = {
    step_offset(config, {0, 0, 0}), step_offset(config, {0, 0, 1}), step_offset(config, {0, 0, 2}),};
__constant__ constexpr u32 step_masks[] = {
    0u, 0u, 0u,};
__constant__ constexpr u32 line_entries[] = {
    0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 14u, 15u,
    16u, 17u, 18u, 19u, 20u, 21u, 22u, 23u, 24u, 25u, 26u, 27u, 28u, 29u, 30u, 31u,
    32u, 33u, 34u, 35u, 36u, 37u, 38u, 39u, 40u, 41u, 42u, 43u, 44u, 45u, 46u, 47u,
    48u, 49u, 50u, 51u, 52u, 53u, 54u, 55u, 56u, 57u, 58u, 59u, 60u, 61u, 62u, 63u,};

struct Tables {
  __device__ static constexpr int steps(int type) { return step_count[type]; }
  __device__ static constexpr i64 weight_base(int type) { return weight_bases[type]; }
  __device__ static constexpr int first_entry(int type) { return first_step[type]; }
  __device__ static constexpr int low_offset(int entry) { return low_offsets[entry]; }
  __device__ static constexpr int high_offset(int entry) { return high_offsets[entry]; }
  __device__ static constexpr u32 mask(int entry) { return step_masks[entry]; }
  __device__ static constexpr u32 line(int type, int line) { return line_entries[type * 64 + line]; }
};

struct Wgmma {
  /// d = a·b, or d += a·b where `add`.
  __device__ static void multiply(float (&d)[80], u64 a, u64 b, bool add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %82, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n160k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
        "}, %80, %81, p, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
          "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
        : "l"(a), "l"(b), "r"(int(add)));
  }
};

using Kernel = PanelGemm<config, Tables, Wgmma>;

__global__ void __launch_bounds__(Kernel::threads, config.blocks_per_sm)
    forward(const __grid_constant__ ForwardParams params) {
  Kernel::run(params);
}

constexpr int shared_bytes = 159576;
}  // namespace kernel_1
/// Attempts one kernel after the other until one will do.
template <class Attempt>
bool any(const Attempt& attempt) {
  return attempt(kernel_0::config, kernel_0::forward, kernel_0::shared_bytes, Turning{}) ||
         attempt(kernel_1::config, kernel_1::forward, kernel_1::shared_bytes, Turning{});
}
}  // namespace tconv::device::selected
#else
namespace tconv::device::selected {
constexpr long long packed_words = 6144;
namespace packing {

constexpr GemmConfig config{
    .math = Math::tf32,
    .groups = 1, .group_in = 32, .group_out = 64,
    .kernel = {1, 1, 3}, .stride = {1, 1, 2}, .padding = {0, 0, 1}, .dilation = {1, 1, 2},
    .first_position = {0, 0, 0}, .reach = {0, 0, 2},
    .channel_phases = {1, 0, 0, 0},
    .x_channels_last = false, .y_rows = false, .x_vector = 1,
    .types = 1, .channel_blocks = 1, .channels_per_block = 64, .x_phases = 1,
    .phase_major = true, .width_phases = 1, .width_slots = 1, .line_phases = 1, .run_phases = 1, .row_pairs = false, .stage_group_tiles = 1, .stage_group_lines = 16, .masked = false,
    .box = {1, 1, 8}, .warps_m = 1, .warps_n = 1, .tiles_m = 4, .tiles_n = 1,
    .chunk_words = 8, .steps_per_slab = 1, .stages = 2, .x_stages = 2, .octet_group = 1,
    .resident_steps = 0, .blocks_per_sm = 1,
    .teams = 0, .rows = 0, .position_tiles = 0, .images = 1, .window = 1,
    .stage_rows = 0, .stage_buffers = 0, .round_on_load = false, .y_channels = 0, .channel_rows = false,
    .panel_columns = 0, .panel_stages = 0, .product_rows = 0, .whole_rows = false, .run_rows = 1, .team_blocks = 1, .box_parts = 1, .loaders = 1, .fill_buffers = 0, .panel_flat = false,
    .turned = false, .turned_once = false, .panel_steps = 0, .shared_halo = {0, 0, 0}, .rows_beside = false,
    .mapped = false, .in_turns = false, .fills = false, .depth_splits = 1, .clustered = false, .march = 0};

__constant__ int step_count[] = {
    3,};
__constant__ i64 weight_bases[] = {
    0,};
__constant__ int first_step[] = {
    0,};
__device__ const Int3 low_shifts[] = {
    {0, 0, 0}, {0, 0, 1}, {0, 0, 2},};
__device__ const Int3 high_shifts[] = {
    {0, 0, 0}, {0, 0, 1}, {0, 0, 2},};
struct __align__(16) Row {
  int channel;
  Int3 phase;
};
__device__ const Row all_rows[] = {
    {0, {0, 0, 0}}, {1, {0, 0, 0}}, {2, {0, 0, 0}}, {3, {0, 0, 0}}, {4, {0, 0, 0}}, {5, {0, 0, 0}}, {6, {0, 0, 0}}, {7, {0, 0, 0}}, {8, {0, 0, 0}}, {9, {0, 0, 0}}, {10, {0, 0, 0}}, {11, {0, 0, 0}}, {12, {0, 0, 0}}, {13, {0, 0, 0}}, {14, {0, 0, 0}}, {15, {0, 0, 0}},
    {16, {0, 0, 0}}, {17, {0, 0, 0}}, {18, {0, 0, 0}}, {19, {0, 0, 0}}, {20, {0, 0, 0}}, {21, {0, 0, 0}}, {22, {0, 0, 0}}, {23, {0, 0, 0}}, {24, {0, 0, 0}}, {25, {0, 0, 0}}, {26, {0, 0, 0}}, {27, {0, 0, 0}}, {28, {0, 0, 0}}, {29, {0, 0, 0}}, {30, {0, 0, 0}}, {31, {0, 0, 0}},
    {32, {0, 0, 0}}, {33, {0, 0, 0}}, {34, {0, 0, 0}}, {35, {0, 0, 0}}, {36, {0, 0, 0}}, {37, {0, 0, 0}}, {38, {0, 0, 0}}, {39, {0, 0, 0}}, {40, {0, 0, 0}}, {41, {0, 0, 0}}, {42, {0, 0, 0}}, {43, {0, 0, 0}}, {44, {0, 0, 0}}, {45, {0, 0, 0}}, {46, {0, 0, 0}}, {47, {0, 0, 0}},
    {48, {0, 0, 0}}, {49, {0, 0, 0}}, {50, {0, 0, 0}}, {51, {0, 0, 0}}, {52, {0, 0, 0}}, {53, {0, 0, 0}}, {54, {0, 0, 0}}, {55, {0, 0, 0}}, {56, {0, 0, 0}}, {57, {0, 0, 0}}, {58, {0, 0, 0}}, {59, {0, 0, 0}}, {60, {0, 0, 0}}, {61, {0, 0, 0}}, {62, {0, 0, 0}}, {63, {0, 0, 0}},};

struct Tables {
  __device__ static int steps(int type) { return step_count[type]; }
  __device__ static i64 weight_base(int type) { return weight_bases[type]; }
  __device__ static Int3 step_shift(int type, int step, bool high) {
    return high ? high_shifts[first_step[type] + step] : low_shifts[first_step[type] + step];
  }
  __device__ static Row row(int type, int row) { return all_rows[type * 64 + row]; }
};

__global__ void __launch_bounds__(256) pack(const __grid_constant__ PackParams params) {
  pack_fragments<config, Tables>(params);
}

constexpr int shared_bytes = 0;
}  // namespace packing
constexpr bool scaled = false;  // weights, by output channel: the scales are the last words
/// Launches what finds the scales of weights, where they have any.
template <class Begin>
void find_scales(const Begin&) {}
/// The kernels that turn x, where it is turned: for one slice at a time, and for several.
struct Turning {
  void (*one)(TurnParams) = nullptr;
  void (*several)(TurnParams) = nullptr;
  int shared_bytes = 0;
};
namespace kernel_0 {

constexpr GemmConfig config{
    .math = Math::tf32,
    .groups = 1, .group_in = 32, .group_out = 64,
    .kernel = {1, 1, 3}, .stride = {1, 1, 2}, .padding = {0, 0, 1}, .dilation = {1, 1, 2},
    .first_position = {0, 0, 0}, .reach = {0, 0, 2},
    .channel_phases = {1, 0, 0, 0},
    .x_channels_last = false, .y_rows = true, .x_vector = 4,
    .types = 1, .channel_blocks = 1, .channels_per_block = 64, .x_phases = 1,
    .phase_major = true, .width_phases = 1, .width_slots = 1, .line_phases = 1, .run_phases = 1, .row_pairs = false, .stage_group_tiles = 1, .stage_group_lines = 16, .masked = false,
    .box = {1, 1, 384}, .warps_m = 1, .warps_n = 8, .tiles_m = 4, .tiles_n = 6,
    .chunk_words = 8, .steps_per_slab = 3, .stages = 2, .x_stages = 2, .octet_group = 1,
    .resident_steps = 0, .blocks_per_sm = 1,
    .teams = 0, .rows = 0, .position_tiles = 0, .images = 1, .window = 1,
    .stage_rows = 0, .stage_buffers = 0, .round_on_load = false, .y_channels = 0, .channel_rows = false,
    .panel_columns = 0, .panel_stages = 0, .product_rows = 0, .whole_rows = false, .run_rows = 1, .team_blocks = 1, .box_parts = 1, .loaders = 1, .fill_buffers = 0, .panel_flat = false,
    .turned = false, .turned_once = false, .panel_steps = 0, .shared_halo = {0, 0, 0}, .rows_beside = false,
    .mapped = false, .in_turns = false, .fills = false, .depth_splits = 1, .clustered = false, .march = 0};

__constant__ int step_count[] = {
    3,};
__constant__ i64 weight_bases[] = {
    0,};
__constant__ int first_step[] = {
    0,};
__constant__ int low_offsets[] = {
    step_offset(config, {0, 0, 0}), step_offset(config, {0, 0, 1}), step_offset(config, {0, 0, 2}),};
__constant__ int high_offsets[] = {
    step_offset(config, {0, 0, 0}), step_offset(config, {0, 0, 1}), step_offset(config, {0, 0, 2}),};
__constant__ u32 step_masks[] = {
    15u, 15u, 15u,};
__constant__ u32 line_entries[] = {
    0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 14u, 15u,
    16u, 17u, 18u, 19u, 20u, 21u, 22u, 23u, 24u, 25u, 26u, 27u, 28u, 29u, 30u, 31u,
    32u, 33u, 34u, 35u, 36u, 37u, 38u, 39u, 40u, 41u, 42u, 43u, 44u, 45u, 46u, 47u,
    48u, 49u, 50u, 51u, 52u, 53u, 54u, 55u, 56u, 57u, 58u, 59u, 60u, 61u, 62u, 63u,};

struct Tables {
  __device__ static int steps(int type) { return step_count[type]; }
  __device__ static i64 weight_base(int type) { return weight_bases[type]; }
  __device__ static int first_entry(int type) { return first_step[type]; }
  __device__ static int low_offset(int entry) { return low_offsets[entry]; }
  __device__ static int high_offset(int entry) { return high_offsets[entry]; }
  __device__ static u32 mask(int entry) { return step_masks[entry]; }
  __device__ static u32 line(int type, int line) { return line_entries[type * 64 + line]; }
};

using Kernel = ImplicitGemm<config, Tables>;

__global__ void __launch_bounds__(Kernel::threads, config.blocks_per_sm)
    forward(const __grid_constant__ ForwardParams params) {
  Kernel::run(params);
}

constexpr int shared_bytes = 90176;
}  // namespace kernel_0
namespace kernel_1 {

constexpr GemmConfig config{
    .math = Math::tf32,
    .groups = 1, .group_in = 32, .group_out = 64,
    .kernel = {1, 1, 3}, .stride = {1, 1, 2}, .padding = {0, 0, 1}, .dilation = {1, 1, 2},
    .first_position = {0, 0, 0}, .reach = {0, 0, 2},
    .channel_phases = {1, 0, 0, 0},
    .x_channels_last = false, .y_rows = true, .x_vector = 1,
    .types = 1, .channel_blocks = 1, .channels_per_block = 64, .x_phases = 1,
    .phase_major = true, .width_phases = 1, .width_slots = 1, .line_phases = 1, .run_phases = 1, .row_pairs = false, .stage_group_tiles = 1, .stage_group_lines = 16, .masked = false,
    .box = {1, 1, 384}, .warps_m = 1, .warps_n = 8, .tiles_m = 4, .tiles_n = 6,
    .chunk_words = 8, .steps_per_slab = 3, .stages = 2, .x_stages = 2, .octet_group = 1,
    .resident_steps = 0, .blocks_per_sm = 1,
    .teams = 0, .rows = 0, .position_tiles = 0, .images = 1, .window = 1,
    .stage_rows = 0, .stage_buffers = 0, .round_on_load = false, .y_channels = 0, .channel_rows = false,
    .panel_columns = 0, .panel_stages = 0, .product_rows = 0, .whole_rows = false, .run_rows = 1, .team_blocks = 1, .box_parts = 1, .loaders = 1, .fill_buffers = 0, .panel_flat = false,
    .turned = false, .turned_once = false, .panel_steps = 0, .shared_halo = {0, 0, 0}, .rows_beside = false,
    .mapped = false, .in_turns = false, .fills = false, .depth_splits = 1, .clustered = false, .march = 0};

__constant__ int step_count[] = {
    3,};
__constant__ i64 weight_bases[] = {
    0,};
__constant__ int first_step[] = {
    0,};
__constant__ int low_offsets[] = {
    step_offset(config, {0, 0, 0}), step_offset(config, {0, 0, 1}), step_offset(config, {0, 0, 2}),};
__constant__ int high_offsets[] = {
    step_offset(config, {0, 0, 0}), step_offset(config, {0, 0, 1}), step_offset(config, {0, 0, 2}),};
__constant__ u32 step_masks[] = {
    15u, 15u, 15u,};
__constant__ u32 line_entries[] = {
    0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 14u, 15u,
    16u, 17u, 18u, 19u, 20u, 21u, 22u, 23u, 24u, 25u, 26u, 27u, 28u, 29u, 30u, 31u,
    32u, 33u, 34u, 35u, 36u, 37u, 38u, 39u, 40u, 41u, 42u, 43u, 44u, 45u, 46u, 47u,
    48u, 49u, 50u, 51u, 52u, 53u, 54u, 55u, 56u, 57u, 58u, 59u, 60u, 61u, 62u, 63u,};

struct Tables {
  __device__ static int steps(int type) { return step_count[type]; }
  __device__ static i64 weight_base(int type) { return weight_bases[type]; }
  __device__ static int first_entry(int type) { return first_step[type]; }
  __device__ static int low_offset(int entry) { return low_offsets[entry]; }
  __device__ static int high_offset(int entry) { return high_offsets[entry]; }
  __device__ static u32 mask(int entry) { return step_masks[entry]; }
  __device__ static u32 line(int type, int line) { return line_entries[type * 64 + line]; }
};

using Kernel = ImplicitGemm<config, Tables>;

__global__ void __launch_bounds__(Kernel::threads, config.blocks_per_sm)
    forward(const __grid_constant__ ForwardParams params) {
  Kernel::run(params);
}

constexpr int shared_bytes = 90176;
}  // namespace kernel_1
/// Attempts one kernel after the other until one will do.
template <class Attempt>
bool any(const Attempt& attempt) {
  return attempt(kernel_0::config, kernel_0::forward, kernel_0::shared_bytes, Turning{}) ||
         attempt(kernel_1::config, kernel_1::forward, kernel_1::shared_bytes, Turning{});
}
}  // namespace tconv::device::selected
#endif

// ---- Calls from PyTorch --------------------------------------------------------------------------------------

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <climits>
#include <string>
#include <vector>

namespace {

using namespace tconv::device;

constexpr int dims = 1;
constexpr int64_t in_channels = 32, out_channels = 64, groups = 1;
constexpr int64_t kernel[] = {3}, stride[] = {2}, padding[] = {1};
constexpr int64_t output_padding[] = {0}, dilation[] = {2};
constexpr at::ScalarType dtype = at::kFloat;

/// Sizes of one call; leading dimensions a layer does not have are 1.
struct Sizes {
  int64_t batch;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
};

Int3 int3(const int64_t (&size)[3]) { return {int(size[0]), int(size[1]), int(size[2])}; }
int64_t volume(const int64_t (&size)[3]) { return size[0] * size[1] * size[2]; }
ImageStrides dense(int64_t channels, const int64_t (&size)[3]) {
  return {channels * volume(size), volume(size), int(size[1] * size[2]), int(size[2]), 1};
}
Int3 kernel_size() {
  int64_t taps[3] = {1, 1, 1};
  for (int d = 0; d < dims; ++d) taps[3 - dims + d] = kernel[d];
  return int3(taps);
}
Strides5 dense_weight() {
  const Int3 taps = kernel_size();
  const int64_t all = int64_t(taps.d) * taps.h * taps.w;
  return {out_channels / groups * all, all, int64_t(taps.h) * taps.w, taps.w, 1};
}

int multiprocessors() {
  int count = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, c10::cuda::current_device()));
  return count;
}

template <class Params>
void launch(void (*entry)(Params), int shared_bytes, Launch grid, Params params) {
  const void* kernel = reinterpret_cast<const void*>(entry);
  if (shared_bytes > 48 * 1024)
    C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  void* arguments[] = {&params};
  C10_CUDA_CHECK(cudaLaunchKernel(kernel, dim3(grid.blocks), dim3(grid.threads), arguments, shared_bytes,
                                  c10::cuda::getCurrentCUDAStream()));
}

/// Whether rows are whole vectors of so many elements. Dense tensors begin at a multiple of 16 bytes.
bool whole_vectors(const at::Tensor& t, int vector) { return vector <= 1 || t.size(-1) % vector == 0; }

/// Where the scales of output channels are in the packed weight, if it was scaled: they are its last words.
constexpr int64_t scale_words = selected::scaled ? out_channels : 0;
float* scales_in(const at::Tensor& packed) {
  return static_cast<float*>(packed.mutable_data_ptr()) + (selected::packed_words - scale_words);
}

/// The weight in the order the kernels read it.
at::Tensor packed_weight(const at::Tensor& weight) {
  at::Tensor packed = at::empty({selected::packed_words}, weight.options().dtype(at::kInt));
  const Strides5 s = dense_weight();
  selected::find_scales([&](auto* entry, int shared_bytes) {
    ScaleParams params{};
    params.weight = static_cast<const float*>(weight.const_data_ptr()), params.scales = scales_in(packed);
    params.stride_in = s.n, params.stride_out = s.c;
    params.stride_d = s.d, params.stride_h = s.h, params.stride_w = s.w;
    params.groups = groups, params.group_in = in_channels / groups, params.group_out = out_channels / groups;
    params.kernel = kernel_size();
    launch(entry, shared_bytes, launch_of(params), params);
  });
  PackParams params{};
  params.weight = weight.const_data_ptr(), params.packed = static_cast<unsigned*>(packed.mutable_data_ptr());
  params.stride_in = s.n, params.stride_out = s.c, params.stride_d = s.d, params.stride_h = s.h, params.stride_w = s.w;
  params.words = (selected::packed_words - scale_words) * 4 / word_bytes(selected::packing::config);
  params.scales = scales_in(packed);
  launch(selected::packing::pack, selected::packing::shared_bytes, launch_of(params, multiprocessors()), params);
  return packed;
}

/// What x may be turned into; calls that would want more take a kernel that reads it as it is.
constexpr long long most_turned_bytes = 1LL << 30;

bool run(const Sizes& s, const at::Tensor& x, const at::Tensor& weight, const void* bias, at::Tensor& y) {
  const at::Tensor packed = packed_weight(weight);
  return selected::any([&](const GemmConfig& config, auto* entry, int shared_bytes, const selected::Turning& turning) {
    // Several images of one box are reached with 32 bits.
    if (!whole_vectors(x, config.x_vector) || (config.images > 1 && config.images * x.stride(0) >= INT_MAX))
      return false;
    ForwardParams params = forward_params(config, s.batch, int3(s.in), int3(s.out));
    // Boxes of whole rows of another size need not begin where vectors do.
    if (params.boxes.w.by > 1 && box_advance(config) % x_alignment(config) != 0) return false;
    params.x = x.const_data_ptr(), params.y = y.mutable_data_ptr(), params.bias = bias;
    params.weight = static_cast<const unsigned*>(packed.const_data_ptr()), params.scales = scales_in(packed);
    params.xs = dense(in_channels, s.in), params.ys = dense(out_channels, s.out);
    at::Tensor turned;
    if (config.turned) {
      const long long bytes = turned_workspace_bytes(config, params);
      if (bytes > most_turned_bytes) return false;
      turned = at::empty({int64_t(bytes)}, x.options().dtype(at::kByte));
      TurnParams turn = turn_params(config, params);
      place_in_workspace(config, static_cast<unsigned char*>(turned.mutable_data_ptr()), params, turn);
      launch(turn.item_slices == 1 ? turning.one : turning.several, turning.shared_bytes,
             launch_of(turn, multiprocessors()), turn);
    }
    launch(entry, shared_bytes, launch_of(config, params, multiprocessors()), params);
    return true;
  });
}

// Messages are put together from strings and handed over whole. Given its parts, TORCH_CHECK would write them to a
// stream, and where this extension is linked with a C++ library of its own beside PyTorch's (a static libstdc++),
// the first number written crashes: the stream looks its locale's facets up in one library by the ids of the other.
std::string text(const char* words) { return words; }
std::string text(int64_t number) { return std::to_string(number); }
std::string text(at::ScalarType type) { return c10::toString(type); }
std::string text(const at::Device& device) { return device.str(); }
std::string text(at::IntArrayRef sizes) {
  std::string out;
  for (const int64_t size : sizes) out += (out.empty() ? "" : ", ") + std::to_string(size);
  return "(" + out + ")";
}
template <class... Parts>
std::string message(const Parts&... parts) {
  return (text(parts) + ...);
}

Sizes check(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const auto check_one = [&](const char* name, const at::Tensor& t) {
    TORCH_CHECK(t.defined() && t.is_cuda(), message(name, " must be a CUDA tensor"));
    TORCH_CHECK(t.device() == x.device(),
                message(name, " must be on the device of x, ", x.device(), ", got ", t.device()));
    TORCH_CHECK(t.layout() == at::kStrided, message(name, " must be a dense tensor"));
    TORCH_CHECK(t.scalar_type() == dtype, message(name, " must hold ", dtype, ", got ", t.scalar_type()));
    TORCH_CHECK(t.is_contiguous(), message(name, " must be contiguous"));
  };
  check_one("x", x);
  check_one("weight", weight);
  if (bias) check_one("bias", *bias);
  TORCH_CHECK(x.dim() == dims + 2, message("x must have ", dims + 2, " dimensions, got ", x.dim()));
  TORCH_CHECK(x.size(1) == in_channels, message("x must have ", in_channels, " channels, got ", x.size(1)));
  std::vector<int64_t> weight_sizes{in_channels, out_channels / groups};
  weight_sizes.insert(weight_sizes.end(), kernel, kernel + dims);
  TORCH_CHECK(weight.sizes() == weight_sizes,
              message("weight must have sizes ", at::IntArrayRef(weight_sizes), ", got ", weight.sizes()));
  TORCH_CHECK(!bias || bias->sizes() == at::IntArrayRef({out_channels}),
              message("bias must have ", out_channels, " elements, got sizes ", bias->sizes()));
  Sizes s{x.size(0)};
  for (int d = 0; d < dims; ++d) {
    const int64_t in = s.in[3 - dims + d] = x.size(2 + d);
    const int64_t out = s.out[3 - dims + d] =
        (in - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel[d] - 1) + output_padding[d] + 1;
    TORCH_CHECK(in > 0 && out > 0,
                message("x is too small: its size ", in, " in dimension ", d, " gives ", out, " outputs"));
  }
  TORCH_CHECK(volume(s.in) < INT_MAX && volume(s.out) < INT_MAX,
              "one channel of an image must have fewer than 2^31 elements");
  return s;
}

}  // namespace

at::Tensor forward(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const Sizes sizes = check(input, weight, bias);
  const c10::cuda::CUDAGuard device(input.device());
  // A view may begin anywhere; a copy begins at a multiple of 16 bytes, as kernels that read vectors want it.
  const bool aligned = reinterpret_cast<uintptr_t>(input.const_data_ptr()) % 16 == 0;
  const at::Tensor x = aligned ? input : input.clone();
  std::vector<int64_t> y_sizes{sizes.batch, out_channels};
  y_sizes.insert(y_sizes.end(), sizes.out + 3 - dims, sizes.out + 3);
  at::Tensor y = at::empty(y_sizes, x.options());
  if (y.numel() == 0) return y;
  TORCH_CHECK(run(sizes, x, weight, bias ? bias->const_data_ptr() : nullptr, y),
              message("x is too large for the kernels of this file: ", x.sizes()));
  return y;
}
"""


@functools.cache
def _extension(major: int, minor: int) -> ModuleType:
    architecture = f"{major}{minor}{'a' if major >= 9 else ''}"
    return load_inline(
        name=f"tconv_kb79_e31ca0f887b8_sm{architecture}",
        cpp_sources=CPP_SOURCE,
        cuda_sources=CUDA_SOURCE,
        functions=["forward"],
        extra_cflags=["-O2", "-std=c++20"],
        extra_cuda_cflags=[
            "-O3",
            "-std=c++20",
            "--expt-relaxed-constexpr",
            f"-gencode=arch=compute_{architecture},code=sm_{architecture}",
            f"-DTCONV_SM90={int(major == 9)}",
        ],
    )


def _check(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Refuses what the kernels are not made for, before anything is compiled, saved or launched.

    The extension checks the same again. It is done here first because an exception that begins in Python needs
    nothing of the compiler and linker the extension is made with.
    """
    for name, tensor in (("x", x), ("weight", weight), ("bias", bias)):
        if tensor is None:
            continue
        if not tensor.is_cuda:
            raise RuntimeError(f"{name} must be a CUDA tensor, got one on {tensor.device}")
        if tensor.device != x.device:
            raise RuntimeError(f"{name} must be on the device of x, {x.device}, got {tensor.device}")
        if tensor.layout is not torch.strided:
            raise RuntimeError(f"{name} must be a dense tensor, got {tensor.layout}")
        if tensor.dtype is not DTYPE:
            raise RuntimeError(f"{name} must hold {DTYPE}, got {tensor.dtype}")
    if x.dim() != 1 + 2:
        raise RuntimeError(f"x must have {1 + 2} dimensions, got {x.dim()}")
    if x.shape[1] != LAYER["in_channels"]:
        raise RuntimeError(f"x must have {LAYER['in_channels']} channels, got {x.shape[1]}")
    if weight.shape != WEIGHT_SIZES:
        raise RuntimeError(f"weight must have sizes {WEIGHT_SIZES}, got {tuple(weight.shape)}")
    if bias is not None and bias.shape != (LAYER["out_channels"],):
        raise RuntimeError(f"bias must have sizes ({LAYER['out_channels']},), got {tuple(bias.shape)}")
    names = ("stride", "padding", "dilation", "kernel_size", "output_padding")
    for d, (stride, padding, dilation, taps, more) in enumerate(zip(*(LAYER[n] for n in names), strict=True)):
        size = x.shape[2 + d]
        outputs = (size - 1) * stride - 2 * padding + dilation * (taps - 1) + more + 1
        if size < 1 or outputs < 1:
            raise RuntimeError(f"x is too small: its size {size} in dimension {d} gives {outputs} outputs")


class _ConvTranspose(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: ANN001
        ctx.save_for_backward(x, weight)
        ctx.bias_sizes = None if bias is None else [bias.numel()]
        extension = _extension(*torch.cuda.get_device_capability(x.device))
        return extension.forward(x.contiguous(), weight.contiguous(), None if bias is None else bias.contiguous())

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # noqa: ANN001
        x, weight = ctx.saved_tensors
        return torch.ops.aten.convolution_backward(
            gradient,
            x,
            weight,
            ctx.bias_sizes,
            LAYER["stride"],
            LAYER["padding"],
            LAYER["dilation"],
            True,
            LAYER["output_padding"],
            LAYER["groups"],
            list(ctx.needs_input_grad),
        )


class ModelNew(nn.Module):
    def __init__(
        self,
        in_channels: int = 32,
        out_channels: int = 64,
        kernel_size: int | tuple[int, ...] = 3,
        stride: int | tuple[int, ...] = 2,
        padding: int | tuple[int, ...] = 1,
        dilation: int | tuple[int, ...] = 2,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.conv1d_transpose = nn.ConvTranspose1d(
            in_channels=in_channels,
            out_channels=out_channels,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            output_padding=0,
            groups=1,
            bias=bias,
            dilation=dilation,
        )
        for name, value in LAYER.items():
            got = getattr(self.conv1d_transpose, name)
            if got != value:
                raise ValueError(f"{name} must be {value}, which the kernels of this file are made for, got {got}")

    def forward(self, x: Tensor) -> Tensor:
        layer = self.conv1d_transpose
        _check(x, layer.weight, layer.bias)
        return _ConvTranspose.apply(x, layer.weight, layer.bias)
