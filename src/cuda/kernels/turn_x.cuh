// Turns x into panels (tiles/x_panel.cuh) in memory, once for all channel blocks that read them:
//
//   [box][group][chunk][part][slice of four words][input of the box's x tile][4 words]
//
// A panel is contiguous, and one copy. Words are rounded or split on their way: in fp32 the first part holds their
// heads, the second their remainders. What is outside of x is zero.
//
// Where x has to be scaled, a block has a panel to itself, and looks for its largest number first. What the threads
// cannot keep is read again then. Behind the panel goes its scale, and whether all of it is finite.
#pragma once

#include "element.cuh"
#include "launch_params.cuh"
#include "ptx/launch.cuh"
#include "ptx/load.cuh"
#include "tiles/panel_slice.cuh"

namespace tconv::device {

template <Math M, TurnLoad L, int Depth>
struct TurnX {
  using Element = typename ElementFor<M>::Type;
  static constexpr int per_word = channels_per_word(M), channels = 4 * per_word;
  static constexpr bool scaled = scales(M);
  static constexpr int most_threads = scaled ? most_turn_threads(Depth) : turn_threads;
  static constexpr int unit = L == TurnLoad::pair ? 2 : 1;  // inputs of a thread
  using Load = typename WordOf<L == TurnLoad::vector ? 16 : unit* int(sizeof(Element))>::Type;
  static constexpr int loads = L == TurnLoad::vector ? channels * int(sizeof(Element)) / 16 : channels;
  /// A slice of a unit, as it was loaded.
  struct Slice {
    Load value[loads];
  };

  // Turned x is at most a gibibyte: 31 bits count its inputs.
  __device__ static void run(const TurnParams& p) {
    ptx::let_next_begin();
    if constexpr (scaled)
      turn_panels(p);
    else
      turn_units(p);
  }

 private:
  struct Item;

  __device__ static void turn_units(const TurnParams& p) {
    // Slices run fastest: where channels are last, those of a position share its lines.
    const int units = int(p.inputs) / unit, items = ceil_div(units, turn_threads) * p.all_parts.by;
    bool began = false;
    for (int number = int(blockIdx.x); number < items; number += int(gridDim.x)) {
      int block = number;
      const int part = p.all_parts.take(block), index = block * turn_threads + int(threadIdx.x);
      if (index >= units) continue;
      int chunk = part;
      const int first = p.parts.take(chunk) * Depth;
      Item item(p, chunk, first, index * unit);
      if (!began) begin(p, item), began = true;
      item.load();
      item.store(p, 1);
    }
    if (!began) begin(p);
  }

  /// Waits for the kernel before. What a thread loads first comes into L2 meanwhile.
  __device__ static void begin(const TurnParams& p, const Item& first) {
    first.prefetch();
    begin(p);
  }
  __device__ static void begin(const TurnParams& p) {
    ptx::wait_for_previous();
    for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < p.arrival_count; i += int(gridDim.x * blockDim.x))
      p.arrivals[i] = 0;
  }

  __device__ static void turn_panels(const TurnParams& p) {
    const int panels = int(p.inputs) / p.tile_inputs.by * p.all_chunks.by;
    for (int panel = int(blockIdx.x); panel < panels; panel += int(gridDim.x)) {
      int tile = panel;
      const int chunk = p.all_chunks.take(tile);
      const auto item_at = [&](int i) {
        int other = i;
        const int fastest = (L == TurnLoad::vector ? p.parts : p.tile_units).take(other);
        const int place = L == TurnLoad::vector ? other : fastest, part = L == TurnLoad::vector ? fastest : other;
        return Item(p, chunk, part * Depth, tile * p.tile_inputs.by + place * unit);
      };
      const int first = int(threadIdx.x), end = p.tile_units.by * p.parts.by;
      Item kept = item_at(first < end ? first : 0);
      if (panel == int(blockIdx.x)) begin(p, kept);
      kept.load();
      const auto each_item = [&](const auto& visit) {
        if (first < end) visit(kept);
        for (int i = first + p.threads; i < end; i += p.threads) {
          Item item = item_at(i);
          item.load();
          visit(item);
        }
      };
      u32 largest = 0;
      each_item([&](const Item& item) { largest = max(largest, item.largest()); });
      largest = largest_of_block(largest);
      const bool finite = largest < infinity_bits;
      if (!finite) {
        largest = 0;
        each_item([&](const Item& item) { largest = max(largest, item.largest_finite()); });
        largest = largest_of_block(largest);
      }
      const u32 scale = scale_of_panel(largest);
      each_item([&](const Item& item) { item.store(p, scale == any_scale ? 1.f : power_of_two(scale)); });
      if (threadIdx.x == 0)
        static_cast<uint4*>(p.turned)[i64(panel) * p.panel_stride + p.scale_place] = make_uint4(scale, finite, 0, 0);
    }
  }

  __device__ static u32 scale_of_panel(u32 largest) {
    if constexpr (M == Math::halves) return scale_for(largest);
    return largest == 0 ? any_scale : coarse_scale_for(largest);
  }

  /// The bits of the largest of what the threads of the block have.
  __device__ static u32 largest_of_block(u32 largest) {
    extern __shared__ unsigned shared[];
    const u32 of_warp = __reduce_max_sync(0xffffffff, largest);
    __syncthreads();  // others may still read those of the panel before
    if (lane_index() == 0) shared[warp_index()] = of_warp;
    __syncthreads();
    u32 all = 0;
    for (int i = 0; i < int(blockDim.x) / warp_size; ++i) all = all > shared[i] ? all : shared[i];
    return all;
  }

  /// A few slices of a unit of inputs, from slice `first` of a chunk on; `chunk` counts those of all groups.
  struct Item {
    Slice slices[Depth];
    uint4* panel;
    int first, place;
    const unsigned char* x;
    u32 stride;
    int there;  // channels, from the first one of the first slice on

    __device__ Item(const TurnParams& p, int chunk, int first_slice, int input) : first(first_slice) {
      // Places behind the last image of a tile are those of the next one that are outside of it.
      int tile = input;
      place = p.tile_inputs.take(tile);
      int images = tile, image_of_tile = place;
      int w = p.start.w + p.boxes.w.take(images) * p.advance.w;
      int h = p.start.h + p.boxes.h.take(images) * p.advance.h;
      int d = p.start.d + p.boxes.d.take(images) * p.advance.d;
      w += p.row_inputs.take(image_of_tile);
      const int beside = p.beside.take(image_of_tile);
      h += p.rows.take(image_of_tile), d += p.depth.take(image_of_tile);
      const int image = images * p.images + image_of_tile * p.beside.by + beside;
      const bool inside = image < p.batch && unsigned(w) < unsigned(p.in.w) && unsigned(h) < unsigned(p.in.h) &&
                          unsigned(d) < unsigned(p.in.d);
      int group = chunk;
      const int channel = (p.chunks.take(group) * p.slices + first) * channels;
      x = reinterpret_cast<const unsigned char*>(static_cast<const Element*>(p.x) + image * p.xs.n +
                                                 (i64(group) * p.group_in + channel) * p.xs.c +
                                                 (d * p.xs.d + h * p.xs.h + w * p.xs.w));
      stride = u32(p.xs.c);
      there = inside ? min(p.group_in - channel, (p.slices - first) * channels) : 0;
      panel = static_cast<uint4*>(p.turned) + (i64(tile) * p.all_chunks.by + chunk) * p.panel_stride;
    }

    __device__ void load() {
      asm volatile("" : "+l"(x));  // loads, which may move otherwise, stay behind what the thread has waited for
#pragma unroll
      for (int i = 0; i < Depth; ++i) slices[i] = TurnX::load(x, stride, i * channels, there);
    }
    /// Into L2, where it may be written until the kernel before is complete.
    __device__ void prefetch() const {
#pragma unroll
      for (int channel = 0; channel < Depth * channels; channel += channels / loads)
        if (channel < there) ptx::prefetch(ptx::further(x, stride, channel * int(sizeof(Element))));
    }

    __device__ void store(const TurnParams& p, float scale) const {
#pragma unroll
      for (int i = 0; i < Depth; ++i) {
        if (first + i >= p.slices) break;
#pragma unroll
        for (int j = 0; j < unit; ++j) {
          int position = place + j;
          const int phase = p.x_phases.take(position);
          uint4* const to = panel + (first + i) * p.slice_stride + position + phase * p.phase_stride;
          uint4* const remainders = to + p.slices * p.slice_stride;
          const Load(&v)[loads] = slices[i].value;
          if constexpr (scaled)
            ScaledSlice<M>(scale, [&](int channel) { return number_of(v, channel, j); }).store(to, remainders);
          else
            store_slice<M>(to, remainders,
                           make_uint4(word_of(v, 0, j), word_of(v, 1, j), word_of(v, 2, j), word_of(v, 3, j)));
        }
      }
    }

    /// The bits of the largest magnitude; and of the largest that is finite.
    __device__ u32 largest() const {
      return largest_of([](u32 bits) { return bits & 0x7fffffff; });
    }
    __device__ u32 largest_finite() const {
      return largest_of([](u32 bits) { return __float_as_uint(finite_magnitude(__uint_as_float(bits))); });
    }

   private:
    template <class Magnitude>
    __device__ u32 largest_of(const Magnitude& magnitude) const {
      u32 all = 0;
#pragma unroll
      for (int i = 0; i < Depth; ++i)
#pragma unroll
        for (int channel = 0; channel < channels; ++channel)
#pragma unroll
          for (int j = 0; j < unit; ++j) all = max(all, magnitude(number_of(slices[i].value, channel, j)));
      return all;
    }
  };

  /// The channels of a slice, from `first` on, those that are there.
  __device__ static Slice load(const unsigned char* x, u32 stride, int first, int there) {
    constexpr int load_channels = channels / loads;
    Slice slice;
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      slice.value[i] = Load{};
      if (const int channel = first + i * load_channels; channel < there)
        ptx::load(slice.value[i], ptx::further(x, stride, channel * int(sizeof(Element))));
    }
    return slice;
  }

  /// Word `index` of the slice at one input of the unit.
  __device__ static u32 word_of(const Load (&value)[loads], int index, int input) {
    if constexpr (L == TurnLoad::vector)
      return channel_of(value, index);
    else
      return slice_word<per_word, unit>(value, index, input != 0);
  }

  /// The bits of a channel of 32 bits at one input of the unit.
  __device__ static u32 number_of(const Load (&value)[loads], int channel, int input) {
    if constexpr (L == TurnLoad::vector)
      return channel_of(value, channel);
    else
      return slice_word<1, unit>(value, channel, input != 0);
  }
};

}  // namespace tconv::device
