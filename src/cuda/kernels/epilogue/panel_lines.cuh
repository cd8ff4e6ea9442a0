// Lines and runs of the panel kernel's epilogue. A warp has 16 rows of the product, each of them a phase of a channel,
// and all positions; rows of the same channel and of all phases along the width are a line, whose outputs are runs with
// these phases interleaved.
#pragma once

#include "epilogue/row_output.cuh"
#include "epilogue/row_place.cuh"
#include "sizes/panel_store.cuh"
#include "tile.cuh"

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
