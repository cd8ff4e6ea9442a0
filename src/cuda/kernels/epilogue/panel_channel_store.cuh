// The epilogue of the panel kernel where channels are the fastest index of rows: channels-last outputs.
//
// A warp has 16 rows of the product, and a position's channels are rows of all four. They meet in shared memory,
// [position][row], a few positions at a time, and leave 16 bytes a lane, or fewer where channels are not aligned for
// it: those of a position are side by side in memory, and whole lines where they fill them. There are two buffers, so
// that one is staged while the other is still being read.
//
// Outputs of channels first are stored so, too, where channels are neighbouring outputs along the width
// (ChannelPhases).
#pragma once

#include "epilogue/row_output.cuh"
#include "epilogue/row_place.cuh"
#include "ptx/store.cuh"
#include "sizes/panel_store.cuh"
#include "tile.cuh"
#include "words.cuh"

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
