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
#include "ptx/load.cuh"
#include "tiles/panel_slice.cuh"

namespace tconv::device {

template <Math M, TurnLoad L>
struct TurnX {
  using Element = typename ElementFor<M>::Type;
  static constexpr int per_word = M == Math::f16 || M == Math::bf16 ? 2 : 1, channels = 4 * per_word;
  static constexpr int unit = L == TurnLoad::pair ? 2 : 1;  // inputs of a thread
  using Load = typename WordOf<L == TurnLoad::vector ? 16 : unit* int(sizeof(Element))>::Type;
  struct Slices {
    uint4 of_input[unit];
  };

  // Turned x is at most a gibibyte: 32 bits count its inputs.
  __device__ static void run(const TurnParams& p) {
    ptx::let_next_begin();
    // Slices run fastest: where channels are last, those of a position share its lines.
    const u32 depth = u32(ceil_div(p.slices, turn_depth)), parts = u32(p.groups * p.chunks) * depth;
    const u32 units = u32(p.inputs) / unit, items = (units + turn_threads - 1) / turn_threads * parts;
    for (u32 item = blockIdx.x; item < items; item += gridDim.x) {
      const u32 index = item / parts * turn_threads + threadIdx.x, part = item % parts;
      if (index < units) turn(p, int(part / depth), int(part % depth * turn_depth), int(index * unit));
    }
  }

 private:
  /// A few slices of a unit of inputs, from slice `first` of a chunk on; `chunk` counts those of all groups.
  __device__ static void turn(const TurnParams& p, int chunk, int first, int input) {
    // Places behind the last image of a tile are those of the next one that are outside of it.
    const int row_inputs = p.x_phases * p.extent.w, tile = input / p.tile_inputs, place = input % p.tile_inputs;
    const int box_w = tile % p.boxes.w, rows_of_boxes = tile / p.boxes.w;
    const int box_h = rows_of_boxes % p.boxes.h, box_d = rows_of_boxes / p.boxes.h % p.boxes.d;
    const int row = place / row_inputs, layer = row / p.extent.h;
    const int image = rows_of_boxes / p.boxes.h / p.boxes.d * p.images + layer / p.extent.d;
    const int w = p.start.w + box_w * p.advance.w + place % row_inputs;
    const int h = p.start.h + box_h * p.advance.h + row % p.extent.h;
    const int d = p.start.d + box_d * p.advance.d + layer % p.extent.d;
    const bool inside = image < p.batch && unsigned(w) < unsigned(p.in.w) && unsigned(h) < unsigned(p.in.h) &&
                        unsigned(d) < unsigned(p.in.d);
    const int group = chunk / p.chunks, channel = (chunk % p.chunks * p.slices + first) * channels;
    const unsigned char* const x = reinterpret_cast<const unsigned char*>(
        static_cast<const Element*>(p.x) + image * p.xs.n + (i64(group) * p.group_in + channel) * p.xs.c +
        (d * p.xs.d + h * p.xs.h + w * p.xs.w));
    // Channels that are there, from the first one of the first slice on.
    const int there = inside ? min(p.group_in - channel, (p.slices - first) * channels) : 0;
    Slices slices[turn_depth];
#pragma unroll
    for (int i = 0; i < turn_depth; ++i) slices[i] = load(x, u32(p.xs.c), i * channels, there);
    uint4* const panel = static_cast<uint4*>(p.turned) + (i64(tile) * p.groups * p.chunks + chunk) * p.panel_stride;
#pragma unroll
    for (int i = 0; i < turn_depth; ++i) {
      if (first + i >= p.slices) break;
#pragma unroll
      for (int j = 0; j < unit; ++j) {
        uint4* const to =
            panel + (first + i) * p.slice_stride + (place + j) / p.x_phases + (place + j) % p.x_phases * p.phase_stride;
        store_slice<M>(to, to + p.slices * p.slice_stride, slices[i].of_input[j]);
      }
    }
  }

  /// The channels of a slice, from `first` on, those that are there.
  __device__ static Slices load(const unsigned char* x, u32 stride, int first, int there) {
    constexpr int loads = L == TurnLoad::vector ? 1 : channels;
    Load value[loads];
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      value[i] = Load{};
      if (first + i < there) ptx::load(value[i], ptx::further(x, stride, (first + i) * int(sizeof(Element))));
    }
    Slices result;
#pragma unroll
    for (int j = 0; j < unit; ++j)
      result.of_input[j] =
          make_uint4(word_of(value, 0, j), word_of(value, 1, j), word_of(value, 2, j), word_of(value, 3, j));
    return result;
  }

  /// Word `index` of the slice at one input of the unit.
  template <int Loads>
  __device__ static u32 word_of(const Load (&value)[Loads], int index, int input) {
    if constexpr (L == TurnLoad::vector)
      return index == 0 ? value[0].x : index == 1 ? value[0].y : index == 2 ? value[0].z : value[0].w;
    else
      return slice_word<per_word, unit>(value, index, input != 0);
  }
};

}  // namespace tconv::device
