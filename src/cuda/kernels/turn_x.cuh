// Turns x into panels (tiles/x_panel.cuh) in memory, once for all channel blocks that read them:
//
//   [box][group][chunk][part][slice of four words][input of the box's x tile][4 words]
//
// A panel is contiguous, and one copy. Words are rounded or split on their way: in fp32 the first part holds their
// heads, the second their remainders. What is outside of x is zero.
#pragma once

#include "element.cuh"
#include "launch_params.cuh"
#include "ptx/launch.cuh"
#include "tiles/panel_slice.cuh"
#include "words.cuh"

namespace tconv::device {

/// `Vectors`: the channels of a slice are one aligned vector of x.
template <Math M, bool Vectors>
struct TurnX {
  using Element = typename ElementFor<M>::Type;
  static constexpr int per_word = M == Math::f16 || M == Math::bf16 ? 2 : 1, channels = 4 * per_word;

  __device__ static void run(const TurnParams& p) {
    ptx::let_next_begin();
    // Slices run fastest: where channels are last, those of a position share its lines.
    const int depth = ceil_div(p.slices, turn_depth), parts = p.groups * p.chunks * depth;
    const i64 items = (p.inputs + turn_threads - 1) / turn_threads * parts;
    for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
      const i64 input = item / parts * turn_threads + threadIdx.x;
      const int part = int(item % parts);
      if (input < p.inputs) turn(p, part / depth, part % depth * turn_depth, input);
    }
  }

 private:
  /// A few slices of one input, from `first` of a chunk on; `chunk` counts those of all groups.
  __device__ static void turn(const TurnParams& p, int chunk, int first, i64 input) {
    const int row_inputs = p.x_phases * p.extent.w, tile_inputs = p.images * p.extent.d * p.extent.h * row_inputs;
    const int tile = int(input / tile_inputs), place = int(input % tile_inputs);
    const int box_w = tile % p.boxes.w, rows_of_boxes = tile / p.boxes.w;
    const int box_h = rows_of_boxes % p.boxes.h, box_d = rows_of_boxes / p.boxes.h % p.boxes.d;
    const int row = place / row_inputs, layer = row / p.extent.h;
    const int image = rows_of_boxes / p.boxes.h / p.boxes.d * p.images + layer / p.extent.d;
    const int w = p.start.w + box_w * p.advance.w + place % row_inputs;
    const int h = p.start.h + box_h * p.advance.h + row % p.extent.h;
    const int d = p.start.d + box_d * p.advance.d + layer % p.extent.d;
    const bool inside = image < p.batch && unsigned(w) < unsigned(p.in.w) && unsigned(h) < unsigned(p.in.h) &&
                        unsigned(d) < unsigned(p.in.d);
    const int group = chunk / p.chunks, slice = chunk % p.chunks * p.slices + first;
    const Element* const x = static_cast<const Element*>(p.x) + image * p.xs.n + i64(group) * p.group_in * p.xs.c +
                             d * p.xs.d + h * p.xs.h + w * p.xs.w;
    uint4 words[turn_depth];
#pragma unroll
    for (int i = 0; i < turn_depth; ++i) words[i] = load(p, x, slice + i, inside && first + i < p.slices);
    uint4* const panel = static_cast<uint4*>(p.turned) + (i64(tile) * p.groups * p.chunks + chunk) * p.panel_stride +
                         place / p.x_phases + place % p.x_phases * p.phase_stride;
#pragma unroll
    for (int i = 0; i < turn_depth; ++i) {
      if (first + i >= p.slices) break;
      uint4* const to = panel + (first + i) * p.slice_stride;
      store_slice<M>(to, to + p.slices * p.slice_stride, words[i]);
    }
  }

  /// The channels of a slice at one position, those that exist.
  __device__ static uint4 load(const TurnParams& p, const Element* x, int slice, bool inside) {
    const int first = slice * channels, there = inside ? p.group_in - first : 0;
    const Element* const from = x + first * p.xs.c;
    if constexpr (Vectors) return there > 0 ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
    u32 word[4] = {};
#pragma unroll
    for (int i = 0; i < channels; ++i)
      if (i < there) word[i / per_word] |= bits_of(from[i * p.xs.c]) << (i % per_word * 16);
    return make_uint4(word[0], word[1], word[2], word[3]);
  }
};

}  // namespace tconv::device
