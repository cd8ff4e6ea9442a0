// The epilogue of the panel kernel where channels are the fastest index of rows: channels-last outputs. Eight
// lanes have neighbouring channels of a position, which are whole sectors of memory in fp32, so sums leave from
// registers. Of 16-bit outputs two lanes swap one position each first: a lane then has two channels of one
// position, and stores a word.
#pragma once

#include "epilogue/row_place.cuh"
#include "tile.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelChannelStore {
  using Element = ElementOf<C>;
  static constexpr int columns = C.panel_columns, position_tiles = C.position_tiles;
  static constexpr bool swaps = rows_in_pairs<C> && sizeof(Element) == 2;
  using Sums = float[position_tiles][columns / 2];

  /// A position of the tile: how far its outputs are from those of the box's first one.
  struct Place {
    bool exists;
    int image, d, h, w;  // w in outputs
    int offset;          // inside the image

    __device__ Place(const ForwardParams& p, int product, int column) {
      if constexpr (C.panel_flat) {
        constexpr Int3 extent = x_extent(C);
        const int position = product * columns + column, row = position / extent.w;
        w = position % extent.w, h = row % extent.h;
        d = row / extent.h % extent.d, image = row / extent.h / extent.d;
        exists = w < C.box.w && h < C.box.h && d < C.box.d && image < C.images;
      } else {
        const int row = product / panels_per_row(C);
        w = product % panels_per_row(C) * columns + column, h = row % C.box.h, d = row / C.box.h, image = 0;
        exists = true;
      }
      image = C.images == 1 ? 0 : image, d *= C.stride.d, h *= C.stride.h, w *= C.stride.w;
      offset = d * p.ys.d + h * p.ys.h + w * p.ys.w;
    }
  };

  /// One of the two rows a lane has.
  struct Row {
    Element* at;  // its output at the box's first position, outside the tensor perhaps
    int od, oh, ow, phase;
    bool exists;
    float bias;

    __device__ Row(const ForwardParams& p, const Tile& tile, int half) {
      const int index = warp_index() % 4 * 16 + half * 8 + lane_index() / 4;
      const RowPlace<C> place(index);
      constexpr int lines = C.rows / C.width_phases;
      const u32 entry = place.line < lines ? Tables::line(tile.type, place.line) : 0xffffffff;
      const int local = int(entry & 0xffff) + tile.channel_block * C.channels_per_block;
      const int channel = tile.group * C.group_out + local;
      exists = entry != 0xffffffff && local < C.group_out;
      phase = place.phase;
      od = tile.origin.d * C.stride.d + int(entry >> 16 & 0xff) - C.padding.d;
      oh = tile.origin.h * C.stride.h + int(entry >> 24) - C.padding.h;
      ow = tile.origin.w * C.stride.w + phase - C.padding.w;
      at = static_cast<Element*>(p.y) + tile.n * p.ys.n + channel * p.ys.c + i64(od) * p.ys.d + i64(oh) * p.ys.h +
           i64(ow) * p.ys.w;
      bias = p.bias && exists ? load_as_accumulator(static_cast<const Element*>(p.bias)[channel]) : 0.f;
    }

    __device__ Element* output(const ForwardParams& p, const Place& place) const {
      return at + (C.images == 1 ? 0 : place.image * p.ys.n) + place.offset;
    }
    /// Whether it has an output at a place, or so many further along the width.
    __device__ bool has(const ForwardParams& p, const Tile& tile, const Place& place, int further = 0) const {
      return exists && place.exists && unsigned(od + place.d) < unsigned(p.out.d) &&
             unsigned(oh + place.h) < unsigned(p.out.h) && unsigned(ow + place.w + further) < unsigned(p.out.w) &&
             (C.images == 1 || tile.n + place.image < p.batch);
    }
  };

  /// The biases of a thread's rows are read with the rest of them.
  struct Bias {
    __device__ Bias(const ForwardParams&, const Tile&) {}
  };

  __device__ static void store(const ForwardParams& p, const Tile& tile, unsigned char*, const Bias&,
                               const Sums& sum) {
    const Row rows[2] = {Row(p, tile, 0), Row(p, tile, 1)};
#pragma unroll
    for (int t = 0; t < position_tiles; ++t)
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        const int first = n * 8 + lane_index() % 4 * 2;
        if constexpr (swaps) {
          const int odd = lane_index() / 4 % 2;
          const Place place(p, t, first + odd);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const Row& row = rows[half];
            const float* const values = sum[t] + n * 4 + half * 2;
            const u32 own = to_element<Element>(values[0] + row.bias).bits |
                            u32(to_element<Element>(values[1] + row.bias).bits) << 16;
            const u32 other = __shfl_xor_sync(0xffffffff, own, 4);
            const u32 word = odd ? __byte_perm(other, own, 0x7632) : __byte_perm(own, other, 0x5410);
            if (row.has(p, tile, place)) *reinterpret_cast<u32*>(row.output(p, place) - odd) = word;
          }
        } else {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const Place place(p, t, first + e);
#pragma unroll
            for (int half = 0; half < 2; ++half)
              if (rows[half].has(p, tile, place))
                *rows[half].output(p, place) = to_element<Element>(sum[t][n * 4 + half * 2 + e] + rows[half].bias);
          }
        }
        if constexpr (C.width_phases < C.stride.w) {
#pragma unroll
          for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int half = 0; half < 2; ++half) fill_gaps(p, tile, rows[half], Place(p, t, first + e));
        }
      }
  }

 private:
  /// Outputs of phases without taps are the bias; the first phase that has taps sees to them.
  __device__ static void fill_gaps(const ForwardParams& p, const Tile& tile, const Row& row, const Place& place) {
    if (row.phase != phase_with_taps(C, 0)) return;
#pragma unroll
    for (int empty = 0; empty < C.stride.w; ++empty)
      if (const int further = empty - row.phase; !phase_has_taps(C, empty) && row.has(p, tile, place, further))
        row.output(p, place)[i64(further) * p.ys.w] = to_element<Element>(row.bias);
  }
};

}  // namespace tconv::device
