// A panel: one chunk of the x tile as wgmma reads it from shared memory.
//
//   [slice of four words][position][4 words], in fp32 first the heads of all words, then their remainders
//
// A tap is the same panel, started a few positions earlier: one panel serves all taps, and its positions need no
// alignment. A thread loads four words of a position, or of two, from as many channels; they are rounded, split or
// joined on their way. Neighbouring threads have neighbouring positions, in memory and here. Channels last, the
// four words are one load, and neighbouring threads have neighbouring slices.
//
// Where several inputs are one position, each is a phase of its own: a slice holds the first input of all positions,
// then the second of all, and a tap begins in the phase it reads.
#pragma once

#include "tile.cuh"
#include "tiles/panel_slice.cuh"

namespace tconv::device {

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

template <GemmConfig C, class Threads>
struct XPanel {
  using Element = ElementOf<C>;
  static constexpr int per_word = channels_per_word(C), channels = 4 * per_word;  // of a slice
  static constexpr int unit = panel_unit(C), positions = x_inputs(C);
  static constexpr int lanes = panel_lanes(C), groups = warpgroup_size / lanes;
  static constexpr int units = panel_units(C, lanes), depth = panel_depth(C, lanes), slices = panel_slices(C);
  static constexpr int phases = C.x_phases;
  static constexpr bool channels_last = C.x_channels_last;
  static_assert(positions % unit == 0 && (!channels_last || (C.x_vector == 4 && groups == slices)));
  static_assert(lanes * unit % phases == 0);

  /// What one load brings: an element of each position of the unit, or a slice of a position.
  using Load = typename WordOf<channels_last ? 16 : unit* int(sizeof(Element))>::Type;
  static constexpr int loads = channels_last ? 1 : channels;  // of a unit and slice
  struct Buffer {
    Load value[units][depth][loads];
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

  struct Loader {
    const Element* first;  // channel of the group that this thread takes first
    i64 channel_stride;
    int offset[units];  // of each unit inside the image, -1 where it is outside

    __device__ void seek(const ForwardParams& p, const Tile& tile) {
      channel_stride = p.xs.c;
      first = static_cast<const Element*>(p.x) + tile.n * p.xs.n +
              (i64(tile.group) * C.group_in + group() * channels) * channel_stride;
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
        const bool inside = has_unit(j) && unsigned(w) < unsigned(p.in.w) && unsigned(h) < unsigned(p.in.h) &&
                            unsigned(d) < unsigned(p.in.d) && (C.images == 1 || tile.n + image < p.batch);
        offset[j] = inside ? d * p.xs.d + h * p.xs.h + w * p.xs.w + (C.images == 1 ? 0 : image * int(p.xs.n)) : -1;
      }
    }

    /// What is outside the image stays zero for the whole tile; its first chunks see to that.
    __device__ void load(Buffer& buffer, int chunk) const {
      constexpr bool whole_chunks = C.group_in % (C.chunk_words * per_word) == 0 && slices % groups == 0;
      if (whole_chunks && chunk < C.fill_buffers) {
#pragma unroll
        for (int j = 0; j < units; ++j)
#pragma unroll
          for (int k = 0; k < depth; ++k)
#pragma unroll
            for (int i = 0; i < loads; ++i) buffer.value[j][k][i] = Load{};
      }
#pragma unroll
      for (int k = 0; k < depth; ++k) {
        const int channel = (chunk * slices + k * groups) * channels;  // from this thread's first
        const Element* source = first + channel * channel_stride;
#pragma unroll
        for (int i = 0; i < loads; ++i, source += channel_stride) {
          const bool exists = whole_chunks || (channel + group() * channels + i < C.group_in && has_slice(k));
#pragma unroll
          for (int j = 0; j < units; ++j) {
            if constexpr (!whole_chunks) buffer.value[j][k][i] = Load{};
            if (exists && offset[j] >= 0) buffer.value[j][k][i] = *reinterpret_cast<const Load*>(source + offset[j]);
          }
        }
      }
    }
  };

  __device__ static void fill(unsigned char* panel, const Buffer& buffer) {
#pragma unroll
    for (int j = 0; j < units; ++j)
#pragma unroll
      for (int k = 0; k < depth; ++k) {
        if (!has_unit(j) || !has_slice(k)) continue;
        const int first = lane() * unit;
        uint4* const to = reinterpret_cast<uint4*>(panel) + (k * groups + group()) * panel_slice_stride(C) +
                          first / phases + first % phases * x_phase_stride(C) + j * (lanes * unit / phases);
        const Load(&v)[loads] = buffer.value[j][k];
        if constexpr (channels_last) {
          put(to, v[0].x, v[0].y, v[0].z, v[0].w);
        } else if constexpr (unit == 1) {
          put(to, word<0>(v, 0), word<0>(v, 1), word<0>(v, 2), word<0>(v, 3));
        } else if constexpr (phases > 1) {
          put(to, word<0>(v, 0), word<0>(v, 1), word<0>(v, 2), word<0>(v, 3));
          put(to + x_phase_stride(C), word<1>(v, 0), word<1>(v, 1), word<1>(v, 2), word<1>(v, 3));
        } else {
          // Of eight lanes four begin with the second position: so all eight write to different banks.
          const bool swap = lane_index() / 4 % 2 != 0;
          u32 a[4], b[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const u32 even = word<0>(v, i), odd = word<1>(v, i);
            a[i] = swap ? odd : even, b[i] = swap ? even : odd;
          }
          put(to + swap, a[0], a[1], a[2], a[3]);
          put(to + !swap, b[0], b[1], b[2], b[3]);
        }
      }
  }

 private:
  /// Word `index` of the slice at one position of the unit.
  template <int Position>
  __device__ static u32 word(const Load (&v)[loads], int index) {
    if constexpr (per_word == 2) {
      const u32 low = v[2 * index], high = v[2 * index + 1];
      if constexpr (unit == 1)
        return low | high << 16;
      else
        return __byte_perm(low, high, Position == 0 ? 0x5410 : 0x7632);
    } else if constexpr (unit == 1) {
      return v[index];
    } else {
      return Position == 0 ? v[index].x : v[index].y;
    }
  }

  __device__ static void put(uint4* to, u32 a, u32 b, u32 c, u32 d) {
    store_slice<C.math>(to, to + slices * panel_slice_stride(C), make_uint4(a, b, c, d));
  }
};

}  // namespace tconv::device
