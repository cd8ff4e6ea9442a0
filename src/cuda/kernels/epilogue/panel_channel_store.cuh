// The epilogue of the panel kernel where channels are the fastest index of rows: channels-last outputs.
//
// A warp has 16 rows of the product, and a position's channels are rows of all four. They meet in shared memory,
// [position][row], a few positions at a time, and leave 16 bytes a lane: the channels of a position are whole lines of
// memory. There are two buffers, so that one is staged while the other is still being read. Where channels cannot be
// stored in vectors, sums leave from registers, one by one.
#pragma once

#include "epilogue/row_place.cuh"
#include "tile.cuh"

namespace tconv::device {

/// `Member` is the warpgroup that stores.
template <GemmConfig C, class Tables, class Member>
struct PanelChannelStore {
  using Element = ElementOf<C>;
  static constexpr int columns = C.panel_columns, position_tiles = C.position_tiles;
  static constexpr int vector = store_vector(C), pitch = staged_pitch(C), part = staged_columns(C);
  using Sums = float[position_tiles][columns / 2];

  /// A position of the tile: how far its outputs are from those of the box's first one.
  struct Place {
    bool exists;
    int image, d, h, w;  // d, h and w in outputs
    i64 offset;

    __device__ Place(const ForwardParams& p, int product, int column) {
      if constexpr (C.panel_flat) {
        constexpr Int3 extent = x_extent(C);
        const int position = product * columns + column, row = position / extent.w;
        w = position % extent.w, h = row % extent.h;
        d = row / extent.h % extent.d, image = row / extent.h / extent.d;
        exists = w < C.box.w && h < C.box.h && d < C.box.d && image < C.images;
      } else {
        const int own_row = C.product_rows > 1 ? column / x_extent(C).w : 0;
        const int row = product / panels_per_row(C) * C.product_rows + own_row;
        w = product % panels_per_row(C) * columns + column - own_row * x_extent(C).w;
        h = row % C.box.h, d = row / C.box.h, image = 0;
        exists = C.product_rows == 1 || (w < C.box.w && own_row < C.product_rows);
      }
      d *= C.stride.d, h *= C.stride.h, w *= C.stride.w;
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
      channel = line.channel, exists = line.exists, phase = place.phase;
      od = tile.origin.d * C.stride.d + line.phase_d - C.padding.d;
      oh = tile.origin.h * C.stride.h + line.phase_h - C.padding.h;
      ow = tile.origin.w * C.stride.w + phase - C.padding.w;
      at = static_cast<Element*>(p.y) + tile.n * p.ys.n + channel * p.ys.c + i64(od) * p.ys.d + i64(oh) * p.ys.h +
           i64(ow) * p.ys.w;
    }

    __device__ float bias(const ForwardParams& p, int further = 0) const {
      return p.bias && exists ? load_as_accumulator(static_cast<const Element*>(p.bias)[channel + further]) : 0.f;
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

  /// The biases of a thread's two rows.
  struct Bias {
    float of_half[2];
    __device__ Bias(const ForwardParams& p, const Tile& tile)
        : of_half{Row(p, tile, row_of(0)).bias(p), Row(p, tile, row_of(1)).bias(p)} {}
  };

  /// The output channel of one of them; -1: it has none.
  __device__ static int channel_of_half(const Tile& tile, int half) {
    const BlockLine<C, Tables> line(tile, RowPlace<C>(row_of(half)).line);
    return line.exists ? line.channel : -1;
  }

  /// Stores a tile; `memory` is the part of this warp of what the warpgroup has.
  __device__ static void store(const ForwardParams& p, const Tile& tile, unsigned char* memory, const Bias& bias,
                               const Sums& sum, int first_product) {
    if constexpr (stages_channels(C))
      store_vectors(p, tile, memory - warp_index() % 4 * panel_store_bytes(C), bias, sum, first_product);
    else
      store_elements(p, tile, bias, sum, first_product);
  }

 private:
  __device__ static int row_of(int half) { return warp_index() % 4 * 16 + half * 8 + lane_index() / 4; }
  __device__ static int first_column_of_lane() { return lane_index() % 4 * 2; }
  __device__ static int thread() { return threadIdx.x % warpgroup_size; }

  __device__ static void store_vectors(const ForwardParams& p, const Tile& tile, unsigned char* memory,
                                       const Bias& bias, const Sums& sum, int first_product) {
    // A thread has the same vector of rows at all its positions.
    constexpr int vectors = C.rows / vector, together = warpgroup_size / vectors;
    const int row_index = thread() % vectors * vector, first = thread() / vectors;
    const Row row(p, tile, row_index);
    const uint4 gap = biases(p, row);
    Member::sync();  // others may still read what they stored of the tile before
#pragma unroll
    for (int t = 0; t < position_tiles; ++t)
#pragma unroll
      for (int column = 0; column < columns; column += part) {
        constexpr int parts = ceil_div(columns, part);
        const int count = min_of(part, columns - column);
        Element* const buffer = reinterpret_cast<Element*>(memory) + (t * parts + column / part) % 2 * (part * pitch);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (C.rows < panel_rows && row_of(half) >= C.rows) break;
          Element* const at = buffer + first_column_of_lane() * pitch + row_of(half);
#pragma unroll
          for (int n = 0; n < count / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              at[(n * 8 + e) * pitch] =
                  to_element<Element>(sum[t][(column / 8 + n) * 4 + half * 2 + e] + bias.of_half[half]);
        }
        Member::sync();
        if (first < together) {
          // Places are not worked out for many parts at once: there are not registers enough.
          int from = first;
          asm volatile("" : "+r"(from));
#pragma unroll
          for (int k = 0; k < ceil_div(part, together); ++k) {
            const int position = from + k * together;
            if (position >= count) break;
            const Place place(p, first_product + t, column + position);
            if (row.has(p, tile, place))
              *reinterpret_cast<uint4*>(row.output(p, place)) =
                  *reinterpret_cast<const uint4*>(buffer + position * pitch + row_index);
            fill_gaps(p, tile, row, place, gap);
          }
        }
      }
  }

  __device__ static void store_elements(const ForwardParams& p, const Tile& tile, const Bias& bias, const Sums& sum,
                                        int first_product) {
    const Row rows[2] = {Row(p, tile, row_of(0)), Row(p, tile, row_of(1))};
#pragma unroll
    for (int t = 0; t < position_tiles; ++t)
#pragma unroll
      for (int n = 0; n < columns / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const Place place(p, first_product + t, n * 8 + first_column_of_lane() + e);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            if (rows[half].has(p, tile, place))
              *rows[half].output(p, place) = to_element<Element>(sum[t][n * 4 + half * 2 + e] + bias.of_half[half]);
            fill_gaps(p, tile, rows[half], place, to_element<Element>(bias.of_half[half]));
          }
        }
  }

  /// What the phases without taps hold at the channels of a vector.
  __device__ static uint4 biases(const ForwardParams& p, const Row& row) {
    uint4 result{};
    if constexpr (C.width_phases < C.stride.w) {
      Element* const elements = reinterpret_cast<Element*>(&result);
#pragma unroll
      for (int i = 0; i < vector; ++i) elements[i] = to_element<Element>(row.bias(p, i));
    }
    return result;
  }

  /// Outputs of phases without taps are the bias; the first phase that has taps sees to them.
  template <class Value>
  __device__ static void fill_gaps(const ForwardParams& p, const Tile& tile, const Row& row, const Place& place,
                                   const Value& bias) {
    if constexpr (C.width_phases < C.stride.w) {
      if (row.phase != phase_with_taps(C, 0)) return;
#pragma unroll
      for (int empty = 0; empty < C.stride.w; ++empty)
        if (const int further = empty - row.phase; !phase_has_taps(C, empty) && row.has(p, tile, place, further))
          *reinterpret_cast<Value*>(row.output(p, place) + i64(further) * p.ys.w) = bias;
    }
  }
};

}  // namespace tconv::device
