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
#pragma once

#include "ptx/load.cuh"
#include "sizes/panel.cuh"
#include "tile.cuh"
#include "tiles/panel_slice.cuh"

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
