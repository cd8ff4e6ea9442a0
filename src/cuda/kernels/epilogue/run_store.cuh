// The epilogue of the warpgroup kernel. A thread has sums of a few positions and of all rows.
//
// Channels first, they leave through shared memory: a line (one channel, phase along depth and height) has a
// run of outputs for each row of positions of the box, in which the phases along the width interleave. Runs
// are staged at the alignment they have in memory, so that all but their ragged ends leave 16 bytes at a time.
// Where boxes overlap along the width, runs begin and end at whole sectors of memory and only the ends of a row
// are ragged: a sector written in two parts by two blocks is paid for twice.
//
// With any other strides, channels last first of all, sums go to memory directly.
#pragma once

#include "epilogue/row_place.cuh"
#include "epilogue/vector_store.cuh"
#include "ptx/barrier.cuh"
#include "sizes/warpgroup.cuh"
#include "tile.cuh"

namespace tconv::device {

template <GemmConfig C, class Team>
struct RunStore {
  using Element = ElementOf<C>;
  static constexpr int position_tiles = C.position_tiles, registers = C.rows / 2;
  static constexpr int phases = C.width_phases, slots = C.width_slots, lines = lines_of_block(C);
  static constexpr int positions = box_positions(C), rows_in_box = box_rows(C);
  static constexpr int vector = store_vector(C);
  static constexpr int run_stride = device::run_stride(C), line_stride = staged_line_stride(C);
  static constexpr int passes = ceil_div(C.rows, C.stage_rows), pass_lines = stage_lines(C);
  static_assert(passes == 1 || C.stage_rows % (8 * slots / gcd(8, slots)) == 0, "a pass holds whole lines");

  struct Line {
    i64 offset;  // of the first output of its first run, outside the tensor perhaps
    float bias;
    u32 low;               // the same as `offset`, from address zero, modulo 2^32
    int first_d, first_h;  // where that run is
    int exists, unused;
  };
  static_assert(sizeof(Line) == row_line_bytes);

  /// A run of the pass: where it goes, which part of it, and where it is staged.
  struct Run {
    Element* at;  // its first output, outside the tensor perhaps
    unsigned short first, end;
    u32 staged;
  };
  static_assert(sizeof(Run) == run_entry_bytes);
  static constexpr int runs = pass_lines * rows_in_box;

  /// Shared memory of a team. Lines are described for the next tile while others still store this one.
  struct Memory {
    unsigned char* staging;
    Line* table;
    __device__ unsigned char* buffer(u32 pass) const {
      return staging + (C.stage_buffers == 2 ? (pass & 1) * stage_bytes(C) : 0);
    }
    __device__ Line* lines_of(u32 tile) const { return table + (tile & 1) * lines; }
  };

  template <class Tables>
  __device__ static void describe(const ForwardParams& p, const Tile& tile, Line* table) {
    for (int i = Team::thread(); i < lines; i += warpgroup_size) {
      const BlockLine<C, Tables> at(tile, i);
      Line line{};
      line.exists = at.exists;
      line.first_d = tile.origin.d * C.stride.d + at.phase_d - C.padding.d;
      line.first_h = tile.origin.h * C.stride.h + at.phase_h - C.padding.h;
      line.offset = tile.n * p.ys.n + at.channel * p.ys.c + i64(line.first_d) * p.ys.d + i64(line.first_h) * p.ys.h +
                    i64(tile.origin.w * C.stride.w - C.padding.w) * p.ys.w;
      line.low = u32(reinterpret_cast<u64>(p.y) / sizeof(Element) + u64(line.offset));
      line.bias = p.bias && line.exists ? load_as_accumulator(static_cast<const Element*>(p.bias)[at.channel]) : 0.f;
      table[i] = line;
    }
  }

  /// Stores a tile. `pass_count` counts the passes of all tiles so far.
  __device__ static void store(const ForwardParams& p, const Tile& tile, const Memory& memory, const Line* table,
                               const float (&sum)[position_tiles][registers], u32& pass_count) {
    if constexpr (C.y_rows) {
#pragma unroll
      for (int pass = 0; pass < passes; ++pass, ++pass_count) {
        Element* const buffer = reinterpret_cast<Element*>(memory.buffer(pass_count));
        Run* const run_table = reinterpret_cast<Run*>(memory.buffer(pass_count) + staging_bytes(C));
        // With two buffers, whoever is here has read the one before the last: it waited for this one.
        if (C.stage_buffers == 1 || pass == 0) Team::sync();
        describe_runs(p, tile, table, run_table, pass);
        stage(buffer, table, p, sum, pass);
        Team::sync();
        store_runs(buffer, run_table);
      }
    } else {
      Team::sync();
      store_elements(p, tile, table, sum);
    }
  }

 private:
  /// A column of the tile as a place in its box.
  struct Place {
    int row, w;  // the row counts images, slices and rows of positions
    __device__ explicit Place(int column) : row(column / C.box.w), w(column % C.box.w) {}
  };
  struct BoxRow {
    int image, d, h;
    __device__ explicit BoxRow(int row)
        : image(row / (C.box.d * C.box.h)), d(row / C.box.h % C.box.d), h(row % C.box.h) {}
    __device__ i64 offset(const ForwardParams& p) const {
      return i64(image) * p.ys.n + i64(d * C.stride.d) * p.ys.d + i64(h * C.stride.h) * p.ys.h;
    }
  };
  __device__ static int column(int tile, int half) {
    return tile * 64 + Team::thread() / warp_size * 16 + lane_index() / 4 + half * 8;
  }
  __device__ static int first_row_of_pair() { return lane_index() % 4 * 2; }

  __device__ static u32 skew_of(u32 low) { return low % vector; }

  __device__ static void stage(Element* buffer, const Line* table, const ForwardParams& p,
                               const float (&sum)[position_tiles][registers], int pass) {
    int place[position_tiles][2];
    u32 row_low[position_tiles][2];
#pragma unroll
    for (int m = 0; m < position_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Place at(column(m, half));
        place[m][half] = at.row * run_stride + at.w * C.stride.w;
        row_low[m][half] = rows_in_box == 1 ? 0 : u32(BoxRow(at.row).offset(p));
      }
    constexpr int pass_tiles = C.stage_rows / 8;
#pragma unroll
    for (int i = 0; i < pass_tiles; ++i) {
      const int n = pass * pass_tiles + i;
      if (n * 8 >= C.rows) break;
      // Places that take a division are not worked out for all rows at once: there are not registers enough.
      if constexpr (8 % slots != 0) asm volatile("" ::: "memory");
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const RowPlace<C> row(n * 8 + first_row_of_pair() + e);
        if ((C.rows % slots != 0 && row.line >= lines) || row.phase < 0) continue;
        const Line& line = table[row.line];
        const float bias = line.bias;
        const u32 low = line.low;
        Element* const at = buffer + (row.line - pass * pass_lines) * line_stride;
        const bool fills_gaps = phases < C.stride.w && row.phase == phase_with_taps(C, 0);
#pragma unroll
        for (int m = 0; m < position_tiles; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            if (positions < 64 * position_tiles && column(m, half) >= positions) continue;
            Element* const target = at + place[m][half] + skew_of(low + row_low[m][half]);
            target[row.phase] = to_element<Element>(sum[m][n * 4 + half * 2 + e] + bias);
            // Outputs of phases without taps are the bias; the first phase that has taps sees to them.
            if (fills_gaps) {
#pragma unroll
              for (int phase = 0; phase < C.stride.w; ++phase)
                if (!phase_has_taps(C, phase)) target[phase] = to_element<Element>(bias);
            }
          }
      }
    }
  }

  /// Works out every run of a pass once, each by one thread: the stores themselves should do nothing but store.
  __device__ static void describe_runs(const ForwardParams& p, const Tile& tile, const Line* table, Run* run_table,
                                       int pass) {
    const int ow0 = tile.origin.w * C.stride.w - C.padding.w;
#pragma unroll 1
    for (int item = Team::thread(); item < runs; item += warpgroup_size) {
      const int in_pass = item / rows_in_box, row = item % rows_in_box;
      Run run{};
      if (pass * pass_lines + in_pass < lines) {
        const Line& line = table[pass * pass_lines + in_pass];
        const BoxRow at(row);
        const bool exists = line.exists && unsigned(line.first_d + at.d * C.stride.d) < unsigned(p.out.d) &&
                            unsigned(line.first_h + at.h * C.stride.h) < unsigned(p.out.h) &&
                            (C.images == 1 || tile.n + at.image < p.batch);
        const i64 offset = rows_in_box == 1 ? 0 : at.offset(p);
        const u32 low = line.low + u32(offset);
        int first = max(0, -ow0), end = min(C.box.w * C.stride.w, p.out.w - ow0);
        if constexpr (C.window > 1) {
          constexpr int advance = box_advance(C) * C.stride.w;
          const auto aligned = [&](int c) { return c + int((0u - (low + u32(c))) % C.window); };
          if (tile.box_w > 0) first = max(first, aligned(0));
          if (tile.box_w + 1 < p.boxes.w.by) end = min(end, aligned(advance));
        }
        run.at = static_cast<Element*>(p.y) + line.offset + offset;
        run.first = static_cast<unsigned short>(first);
        run.end = static_cast<unsigned short>(exists ? max(end, 0) : 0);
        run.staged = u32(in_pass * line_stride + row * run_stride);
      }
      run_table[item] = run;
    }
  }

  /// Threads take one vector after another; vectors are aligned in memory and in the staging buffer, and the first
  /// one of a run may begin before it.
  __device__ static void store_runs(const Element* buffer, const Run* run_table) {
    constexpr int vectors = run_stride / vector;  // of a run
#pragma unroll 2
    for (int item = Team::thread(); item < runs * vectors; item += warpgroup_size) {
      const int index = item / vectors, place = item % vectors * vector;
      const Run run = run_table[index];
      const uint4 value = *reinterpret_cast<const uint4*>(buffer + run.staged + place);
      device::store_vector<vector>(run.at, run.first, run.end, place - device::skew_of<vector>(run.at), value);
    }
  }

  __device__ static void store_elements(const ForwardParams& p, const Tile& tile, const Line* table,
                                        const float (&sum)[position_tiles][registers]) {
    Element* const y = static_cast<Element*>(p.y);
    const int ow0 = tile.origin.w * C.stride.w - C.padding.w;
    // Pairs of rows are neighbouring channels, and stay together where memory has them together.
    constexpr bool pairs = C.y_channels >= 2 && C.channel_rows && C.channels_per_block % 2 == 0 && C.group_out % 2 == 0;
#pragma unroll
    for (int m = 0; m < position_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at_column = column(m, half);
        const Place place(at_column);
        const BoxRow at(place.row);
        if (at_column >= positions || (C.images > 1 && tile.n + at.image >= p.batch)) continue;
        const i64 offset = at.offset(p) + i64(place.w * C.stride.w) * p.ys.w;
        const int ow = ow0 + place.w * C.stride.w;
#pragma unroll
        for (int n = 0; n < C.rows / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; e += pairs ? 2 : 1) {
            const RowPlace<C> row(n * 8 + first_row_of_pair() + e);
            if (row.line >= lines || row.phase < 0) continue;
            const Line& line = table[row.line];
            if (!line.exists || unsigned(line.first_d + at.d * C.stride.d) >= unsigned(p.out.d) ||
                unsigned(line.first_h + at.h * C.stride.h) >= unsigned(p.out.h) ||
                unsigned(ow + row.phase) >= unsigned(p.out.w))
              continue;
            Element* const target = y + (line.offset + offset + i64(row.phase) * p.ys.w);
            const float* const value = sum[m] + n * 4 + half * 2 + e;
            if constexpr (pairs) {
              store_pair(target, value[0] + line.bias, value[1] + table[row.line + 1].bias);
            } else {
              *target = to_element<Element>(value[0] + line.bias);
            }
          }
        // The phases without taps, once for each line.
        if constexpr (phases < C.stride.w) {
          for (int i = lane_index() % 4; i < lines; i += 4) {
            const Line& line = table[i];
            if (!line.exists || unsigned(line.first_d + at.d * C.stride.d) >= unsigned(p.out.d) ||
                unsigned(line.first_h + at.h * C.stride.h) >= unsigned(p.out.h))
              continue;
#pragma unroll
            for (int phase = 0; phase < C.stride.w; ++phase)
              if (!phase_has_taps(C, phase) && unsigned(ow + phase) < unsigned(p.out.w))
                y[line.offset + offset + i64(phase) * p.ys.w] = to_element<Element>(line.bias);
          }
        }
      }
  }
};

}  // namespace tconv::device
