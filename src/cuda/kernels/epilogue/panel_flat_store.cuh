// The epilogue of the panel kernel where products are flat: they cover all of the box, and its runs are staged
// together. A run is a row of a line, or a slice of rows that follow one another; runs are described once for a tile,
// lines once for a pass.
#pragma once

#include "epilogue/panel_lines.cuh"
#include "epilogue/panel_staging.cuh"
#include "epilogue/vector_store.cuh"
#include "ptx/store.cuh"
#include "words.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelFlatStore {
  using Lines = PanelLines<C, Tables>;
  using Staging = PanelStaging<C, Tables>;
  using Element = ElementOf<C>;
  using LineRuns = typename Lines::LineRuns;
  static constexpr int columns = C.panel_columns, vector = store_vector(C), pass_runs = panel_pass_runs(C);
  static constexpr int line_stride = panel_line_stride(C), run_stride = panel_run_stride(C);
  static constexpr int line_runs = flat_runs_of_line(C), flat_runs = pass_runs * line_runs;  // of a pass
  static constexpr int pitch = x_extent(C).w, rows = panel_runs(C);                          // of staged positions
  static_assert(!Lines::whole_rows || C.run_rows == C.box.h);

  /// Stores a tile through `memory`, which is the warp's own.
  __device__ static void store(const ForwardParams& p, const Tile& tile, unsigned char* memory,
                               const typename Lines::Outputs& outputs, const typename Lines::Sums& sum) {
    Element* const staging = reinterpret_cast<Element*>(memory);
    describe_rows(p, tile, flat_rows(memory));
#pragma unroll
    for (int first_half = 0; first_half < 2; first_half += Lines::halves) {
      if (C.rows < panel_rows && Lines::first_line(first_half) * C.width_slots >= C.rows) break;
      if (!Lines::stores(tile, first_half)) continue;
      // Calls `stage(half)` for each half of the rows that is stored with this one.
      const auto each_half = [&](const auto& stage) {
#pragma unroll
        for (int i = 0; i < Lines::halves; ++i) stage(first_half + i);
      };
      if (lane_index() < pass_runs)
        flat_lines(memory)[lane_index()] =
            FlatLine(LineRuns(p, tile, Lines::first_line(first_half) + lane_index() * Lines::run_lines));
      if constexpr (C.row_pairs) {
#pragma unroll
        for (int t = 0; t < C.position_tiles; ++t) stage_paired(staging, sum[t], outputs.of_half[0], t);
      } else {
        each_half([&](int half) {
#pragma unroll
          for (int t = 0; t < C.position_tiles; ++t) stage(staging, sum[t], outputs.of_half[half], half, t);
        });
      }
      __syncwarp();
      store_runs(p, tile, memory);
      __syncwarp();
    }
  }

 private:
  struct FlatRow {
    i64 offset;    // from the first output of the box
    short d, h;    // outputs from it along depth and height
    short staged;  // which staged row it begins with
    short exists;  // its image is one of the batch
  };
  struct FlatLine {
    Element* at;
    int d, h;  // its first output, along the depth far outside where the line does not exist
    __device__ explicit FlatLine(const LineRuns& line)
        : at(line.at), d(line.exists ? line.od : -(1 << 30)), h(line.oh) {}
  };
  static_assert(sizeof(FlatRow) == run_entry_bytes && sizeof(FlatLine) == run_entry_bytes);
  __device__ static FlatRow* flat_rows(unsigned char* memory) {
    return reinterpret_cast<FlatRow*>(memory + panel_staging_bytes(C));
  }
  __device__ static FlatLine* flat_lines(unsigned char* memory) {
    return reinterpret_cast<FlatLine*>(flat_rows(memory) + line_runs);
  }

  __device__ static void describe_rows(const ForwardParams& p, const Tile& tile, FlatRow* table) {
    for (int run = lane_index(); run < line_runs; run += warp_size) {
      const int row = run * C.run_rows, h = row % C.box.h * C.stride.h, slice = row / C.box.h;
      const int d = slice % C.box.d * C.stride.d, image = slice / C.box.d;
      table[run] = {image * p.ys.n + i64(d) * p.ys.d + i64(h) * p.ys.h, short(d), short(h), short(x_row_of(C, row)),
                    short(C.images == 1 || tile.n + image < p.batch)};
    }
  }

  __device__ static void stage(Element* staging, const float (&sum)[columns / 2], const RowOutput<C>& output, int half,
                               int product) {
    Element* const at = staging + Lines::run_of_lane() * line_stride +
                        Lines::line_of_lane() % Lines::run_lines * (C.box.w * C.stride.w) + panel_flat_skew(C);
    // Places are worked out again for each half of the rows: there are not registers enough to keep them.
    int own = Lines::first_column_of_lane();
    asm volatile("" : "+r"(own));
    const int swapped = Staging::second_first();
    Element* const own_at = at + own * C.stride.w;
    Element* const at_of[2] = {own_at + (swapped ? C.stride.w : 0), own_at + (swapped ? 0 : C.stride.w)};
    Staging::stage_each(output, half, [&](int, const auto& visit) {
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        // Eight columns begin with this one: of one row, most of the time, and all of it outputs.
        const int first = product * columns + n * 8, row = first / pitch, column = first % pitch;
        if (row >= rows || (column >= C.box.w && column + 8 <= pitch)) continue;
        // Without a halo, rows may follow one another here as they do there.
        constexpr bool dense = pitch == C.box.w && run_stride == C.box.w * C.stride.w;
        const bool whole = dense ? first + 8 <= rows * pitch : column + 8 <= C.box.w;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float value = Staging::sum_of(sum, n, half, e, swapped);
          if (whole) {
            visit(at_of[e] + row * run_stride + column * C.stride.w, value);
            continue;
          }
          int own_row = row, own_column = column + own + (e ^ swapped);
#pragma unroll
          for (int i = 0; i < ceil_div(8, pitch); ++i)
            if (own_column >= pitch) own_column -= pitch, ++own_row;
          if (own_column < C.box.w && own_row < rows) visit(at + own_row * run_stride + own_column * C.stride.w, value);
        }
      }
    });
  }

  /// Both rows of a lane, which are phases of one line. (It goes through the columns as stage() does, and apart from
  /// it: with what is alike in one function, registers of tiles without pairs came out otherwise.)
  __device__ static void stage_paired(Element* staging, const float (&sum)[columns / 2], const RowOutput<C>& output,
                                      int product) {
    using Grouped = typename Staging::Grouped;
    constexpr int line_outputs = C.box.w * C.stride.w;
    static_assert(run_stride % 2 == 0 && line_outputs % 2 == 0, "whether places are even is one thing for all");
    constexpr bool quads = Staging::outputs_follow && (Lines::run_lines == 1 || line_outputs % 4 == 0);
    Element* const at = staging + Lines::run_of_lane() * line_stride +
                        Lines::line_of_lane() % Lines::run_lines * line_outputs + panel_flat_skew(C) +
                        Lines::slot_of_lane(0);
    int own = Lines::first_column_of_lane();
    asm volatile("" : "+r"(own));
    Element* const own_at = at + own * C.stride.w;
#pragma unroll
    for (int n = 0; n < columns / 8; ++n) {
      const int first = product * columns + n * 8, row = first / pitch, column = first % pitch;
      if (row >= rows || (column >= C.box.w && column + 8 <= pitch)) continue;
      constexpr bool dense = pitch == C.box.w && run_stride == line_outputs;
      if (dense ? first + 8 <= rows * pitch : column + 8 <= C.box.w) {
        const int place = row * run_stride + column * C.stride.w;
        if constexpr (panel_flat_skew(C) % 2 != 0)
          Staging::template stage_paired<Staging::grouped_at(1)>(own_at + place, sum, n, output);
        else if (quads && (panel_flat_skew(C) + place) % 4 == 0)
          Staging::template stage_paired<Staging::grouped_at(0)>(own_at + place, sum, n, output);
        else
          Staging::template stage_paired<Grouped::pairs>(own_at + place, sum, n, output);
        continue;
      }
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        int own_row = row, own_column = column + own + next;
#pragma unroll
        for (int i = 0; i < ceil_div(8, pitch); ++i)
          if (own_column >= pitch) own_column -= pitch, ++own_row;
        if (own_column >= C.box.w || own_row >= rows) continue;
        Element* const to = at + own_row * run_stride + own_column * C.stride.w;
#pragma unroll
        for (int second = 0; second < 2; ++second)
          to[second] = to_element<Element>(output(sum[n * 4 + second * 2 + next]));
      }
    }
  }

  /// A run of a pass.
  struct FlatRun {
    Element* at;
    int staged;  // where its output 0 is
    bool exists;
    __device__ FlatRun(const ForwardParams& p, unsigned char* memory, int index) {
      const FlatRow row = flat_rows(memory)[index % line_runs];
      const FlatLine line = flat_lines(memory)[index / line_runs];
      exists =
          row.exists && unsigned(line.d + row.d) < unsigned(p.out.d) && unsigned(line.h + row.h) < unsigned(p.out.h);
      at = line.at + row.offset;
      staged = index / line_runs * line_stride + row.staged * run_stride + panel_flat_skew(C);
    }
  };

  __device__ static void store_runs(const ForwardParams& p, const Tile& tile, unsigned char* memory) {
    // Of every run the same outputs exist.
    const int ow = tile.origin.w * C.stride.w - C.padding.w;
    const int rows = min(C.run_rows * Lines::run_lines, p.out.h - (tile.origin.h * C.stride.h - C.padding.h));
    const int first = max(0, -ow),
              end = max(Lines::whole_rows ? rows * p.out.w : min(C.box.w * C.stride.w, p.out.w - ow), first);
    // Strides of dimensions of size 1 are never stepped along.
    const i64 strides = p.ys.c | (p.batch > 1 ? p.ys.n : 0) | (p.out.d > 1 ? p.ys.d : 0) |
                        (p.out.h > (Lines::whole_rows ? C.box.h * Lines::run_lines : 1) ? p.ys.h : 0);
    const bool in_memory = (reinterpret_cast<i64>(p.y) / int(sizeof(Element)) | strides | ow + first) % vector == 0;
    // Slices are staged one after the other, with the rows of their halo between them.
    constexpr bool in_staging = !Lines::whole_rows || run_stride * x_extent(C).h % vector == 0;
    if (in_memory && in_staging && (panel_flat_skew(C) + first) % vector == 0)
      store_aligned(p, memory, first, end);
    else
      store_joined(p, memory, first, end);
  }

  /// Runs are in memory as they are staged. A lane has the same vectors of several runs.
  __device__ static void store_aligned(const ForwardParams& p, unsigned char* memory, int first, int end) {
    constexpr int most = ceil_div(C.run_rows * Lines::run_lines * C.box.w * C.stride.w, vector),
                  lanes = min_of(most, warp_size);
    constexpr int together = warp_size / lanes;  // runs
    const Element* const staging = reinterpret_cast<const Element*>(memory) + first;
    const int place = lane_index() % lanes, whole = (end - first) / vector;
    if (lane_index() < lanes * together) {
#pragma unroll 4
      for (int index = lane_index() / lanes; index < flat_runs; index += together) {
        const FlatRun run(p, memory, index);
#pragma unroll
        for (int i = 0; i < ceil_div(most, lanes); ++i) {
          const int own = place + i * lanes;
          if (run.exists && own < whole)
            ptx::store(run.at + first + own * vector,
                       *reinterpret_cast<const uint4*>(staging + run.staged + own * vector));
        }
      }
    }
    // What is behind the last whole vector.
    const int tail = (end - first) % vector;
    if (tail == 0) return;
    for (int item = lane_index(); item < flat_runs * vector; item += warp_size) {
      const FlatRun run(p, memory, item / vector);
      const int own = whole * vector + item % vector;
      if (run.exists && item % vector < tail) run.at[first + own] = staging[run.staged + own];
    }
  }

  /// Runs are in memory otherwise: each vector is joined from two that are staged. Lanes take vectors in turn.
  __device__ static void store_joined(const ForwardParams& p, unsigned char* memory, int first, int end) {
    constexpr int together = 2;
    if (first == end) return;
    const int vectors = (end - first + 2 * vector - 2) / vector;  // one more where it begins between them
    const Element* const staging = reinterpret_cast<const Element*>(memory);
    int run = lane_index() / vectors, index = lane_index() % vectors;
    const int next_run = warp_size / vectors, next_index = warp_size % vectors;
#pragma unroll 1
    for (int item = 0; item < flat_runs * vectors; item += warp_size * together) {
      Element* at[together];
      int begins[together];  // with this output of the run
      Words<4> value[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const FlatRun own(p, memory, min(run, flat_runs - 1));
        at[i] = own.at;
        const int c = first + index * vector - skew_of<vector>(at[i] + first);
        const int place = own.staged + c, shift = (place % vector + vector) % vector;
        const auto* const staged = reinterpret_cast<const Words<4>*>(staging + (place - shift));
        // Nothing is staged before the first run.
        value[i] = shifted<Element>(place < shift ? Words<4>{} : staged[0], staged[1], shift);
        begins[i] = own.exists && run < flat_runs ? c : end;
        run += next_run, index += next_index;
        if (index >= vectors) index -= vectors, ++run;
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const Words<4>& v = value[i];
        device::store_vector<vector>(at[i], first, end, begins[i],
                                     make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]));
      }
    }
  }
};

}  // namespace tconv::device
