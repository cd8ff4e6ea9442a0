// The epilogue of the panel kernel. A warp has 16 rows of the product, each of them a phase of a channel, and all
// positions; it stores them by itself, eight rows at a time or, where they are one line, all 16, through shared memory
// of its own.
//
// Where a product is a piece of a row of positions, the lines of these rows become runs of outputs with their
// phases along the width interleaved. Runs are staged at the alignment they have in memory, so that all but their
// ragged ends leave 16 bytes at a time. A product may cover several rows of positions, one after the other; where these
// are whole rows of outputs, which follow one another in memory, several are one run. Where products are flat, they
// cover all of the box, and its runs are staged together.
#pragma once

#include "epilogue/row_output.cuh"
#include "epilogue/row_place.cuh"
#include "epilogue/vector_store.cuh"
#include "ptx/store.cuh"
#include "sizes/panel_store.cuh"
#include "tile.cuh"
#include "words.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelStore {
  using Element = ElementOf<C>;
  static constexpr int columns = C.panel_columns, position_tiles = C.position_tiles;
  static constexpr int phases = C.width_phases, slots = C.width_slots, pass_lines = panel_pass_lines(C);
  static constexpr int line_stride = panel_line_stride(C), run_stride = panel_run_stride(C);
  static constexpr int runs_per_line = panel_runs(C);
  static constexpr int vector = store_vector(C);
  static_assert(are_whole_lines(slots));
  static constexpr int halves = 2 / panel_passes(C);  // of the 16 rows, in a pass
  /// Lines of a run, and the lanes that have sums of it.
  static constexpr int run_lines = device::run_lines(C), pass_runs = panel_pass_runs(C);
  static constexpr int own_lanes = panel_line_lanes(C) * run_lines;
  /// The lanes that have sums of a line store its run, one vector after another; but eight at least, which are a whole
  /// line of memory. Long runs of 32-bit outputs are stored by 16 at least, which begin where a line of memory does,
  /// and only sectors that a run has all of leave as vectors: memory is slow to take sectors in two parts.
  static constexpr bool long_runs = sizeof(Element) == 4 && !C.panel_flat && run_stride >= 32 * vector;
  static constexpr int run_lanes = max_of(own_lanes, long_runs ? 16 : 8);
  static constexpr int whole_unit = long_runs ? 32 / int(sizeof(Element)) : vector;
  using Sums = float[position_tiles][columns / 2];

  /// A run of the pass: where its first output goes, outside the tensor perhaps, and which part of it exists.
  struct Run {
    Element* at;
    unsigned short first, end;
  };

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

  /// Stores a tile, or the part of it that begins with product `first_product`, through `memory`, which is the warp's
  /// own.
  __device__ static void store(const ForwardParams& p, const Tile& tile, unsigned char* memory, const Outputs& outputs,
                               const Sums& sum, int first_product) {
    Element* const staging = reinterpret_cast<Element*>(memory);
    if constexpr (C.panel_flat) describe_rows(p, tile, flat_rows(memory));
#pragma unroll
    for (int first_half = 0; first_half < 2; first_half += halves) {
      if (C.rows < panel_rows && first_line(first_half) * slots >= C.rows) break;
      // Calls `stage(half)` for each half of the rows that is stored with this one.
      const auto each_half = [&](const auto& stage) {
#pragma unroll
        for (int i = 0; i < halves; ++i) stage(first_half + i);
      };
      if constexpr (C.panel_flat) {
        if (lane_index() < pass_runs)
          flat_lines(memory)[lane_index()] =
              FlatLine(LineRuns(p, tile, first_line(first_half) + lane_index() * run_lines));
        each_half([&](int half) {
#pragma unroll
          for (int t = 0; t < position_tiles; ++t) stage_flat(staging, sum[t], outputs.of_half[half], half, t);
        });
        __syncwarp();
        store_flat(p, tile, memory);
        __syncwarp();
      } else {
        const LineRuns line(p, tile, first_line(first_half) + run_of_lane() * run_lines);
        Run run;
        const auto store_row = [&](int t, auto index) {
          constexpr int of_run = index.value % C.run_rows;
          if constexpr (of_run == 0) run = line.of_product(p, tile, first_product + t, index.value);
          const Row<index.value> row{(of_run * run_lines + line_of_lane() % run_lines) * p.out.w, p.out.w};
          each_half([&](int half) {
            if constexpr (beside_gap)
              stage_beside_gaps(staging, run, sum[t], outputs.of_half[half], half, row);
            else if (stage_pairs(run, row))
              stage_run<true>(staging, run, sum[t], outputs.of_half[half], half, row);
            else
              stage_run<false>(staging, run, sum[t], outputs.of_half[half], half, row);
          });
          if constexpr (of_run + 1 == C.run_rows || index.value + 1 == C.product_rows) {
            __syncwarp();
            store_runs(run, [&](int own) { return Staged{staging + own * line_stride}; });
            __syncwarp();
          }
        };
#pragma unroll
        for (int t = 0; t < position_tiles; ++t) unrolled<C.product_rows>([&](auto index) { store_row(t, index); });
      }
    }
  }

  /// Stores a tile of a type without taps, or a part of it: the bias, everywhere.
  __device__ static void fill(const ForwardParams& p, const Tile& tile, const Outputs& outputs, int first_product) {
    constexpr int runs = C.panel_flat ? box_rows(C) : position_tiles * product_runs(C);
#pragma unroll
    for (int half = 0; half < 2; half += halves) {
      if (C.rows < panel_rows && first_line(half) * slots >= C.rows) break;
      const LineRuns line(p, tile, first_line(half) + run_of_lane() * run_lines);
      const u32 bias = bits_of(to_element<Element>(outputs.of_half[half].bias));
#pragma unroll 1
      for (int i = 0; i < runs; ++i) {
        const Run run = C.panel_flat ? line.piece(p, tile, i / C.box.h / C.box.d, i / C.box.h % C.box.d, i % C.box.h, 0)
                                     : line.of_product(p, tile, first_product + i / product_runs(C),
                                                       i % product_runs(C) * C.run_rows);
        store_runs(run, [&](int own) { return Filled(__shfl_sync(0xffffffff, bias, own * own_lanes)); });
      }
    }
  }

 private:
  using Line = BlockLine<C, Tables>;

  __device__ static int first_line(int half) { return (warp_index() % 4 * 16 + half * 8) / slots; }
  /// The row that a lane's sums of a half belong to, as a line of the pass and a slot of it.
  __device__ static int line_of_lane() { return lane_index() / 4 / slots; }
  __device__ static int run_of_lane() { return line_of_lane() / run_lines; }
  __device__ static int slot_of_lane(int half) { return lane_index() / 4 % slots + (halves > 1 ? half * 8 : 0); }
  __device__ static int first_column_of_lane() { return lane_index() % 4 * 2; }

  /// The outputs of a line: where they begin for the box, and which of them exist.
  struct LineRuns {
    Element* at;  // the first output of the box, outside the tensor perhaps
    int od, oh, ow;
    bool exists;

    __device__ LineRuns(const ForwardParams& p, const Tile& tile, int index) {
      const Line line(tile, index);
      exists = line.exists;
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
      const int row = product / panels_per_row(C) * C.product_rows + product_row, h = row % C.box.h;
      Run run = piece(p, tile, 0, row / C.box.h, h, product % panels_per_row(C) * columns * C.stride.w);
      if constexpr (whole_rows) {
        const int rows =
            min(min_of(C.run_rows, C.product_rows - product_row) * run_lines, p.out.h - (oh + h * C.stride.h));
        if (run.end > 0) run.end = static_cast<unsigned short>(row_lead(C) + rows * p.out.w);
      }
      return run;
    }
  };

  // Outputs of phases without taps are the bias. Lanes whose rows are padding stage as many of these as they can, those
  // of the first phase that has taps the others.
  static constexpr int gaps = C.stride.w - phases, padding = slots - phases, gaps_left = max_of(gaps - padding, 0);
  static constexpr bool beside_gap = phases == 1 && C.stride.w == 2;  // every output has one behind it

  // Runs of several rows: no output may be staged where one of another row is.
  static constexpr bool whole_rows = C.run_rows > 1;
  static_assert(!whole_rows || (C.stride.h == run_lines && gaps == 0 && panels_per_row(C) == 1 && row_lead(C) >= 0));

  /// Row `Index` of the product: where its outputs are staged behind those of the run's first row, and how many there
  /// are. (Which sums are whose must be plain to the compiler, or it has them in memory.)
  template <int Index>
  struct Row {
    static constexpr int first_column = Index * x_extent(C).w;
    int place, width;
  };

  /// Calls `visit(phase, index)` for each of the phases without taps.
  template <class Visit>
  __device__ static void each_gap(const Visit& visit) {
    int index = 0;
#pragma unroll
    for (int phase = 0; phase < C.stride.w; ++phase)
      if (!phase_has_taps(C, phase)) visit(phase, index++);
  }

  /// What a lane stages of each position.
  struct OfLane {
    int phase;
    bool gap = false;
    __device__ explicit OfLane(int half) : phase(phase_of_slot<C>(slot_of_lane(half))) {
      each_gap([&](int empty, int index) {
        if (index < padding && slot_of_lane(half) == phases + index) phase = empty, gap = true;
      });
    }
    __device__ Element value(float sum, const RowOutput<C>& output) const {
      return to_element<Element>(padding > 0 && gaps > 0 && gap ? output.bias : output(sum));
    }
  };

  /// Stages one number of each position: `each(phase, visit)` calls `visit(to, sum)` for those of the lane, `to` being
  /// the first output of the position. Lanes part once, not at every position.
  template <class Each>
  __device__ static void stage_each(const RowOutput<C>& output, int half, const Each& each) {
    const OfLane lane(half);
    if (padding <= gaps || lane.phase >= 0)
      each(lane.phase, [&](Element* to, float sum) { to[lane.phase] = lane.value(sum, output); });
    if constexpr (gaps_left > 0) {
      if (!lane.gap && lane.phase == phase_with_taps(C, 0))
        each(lane.phase, [&](Element* to, float) {
          each_gap([&](int empty, int index) {
            if (index >= padding) to[empty] = to_element<Element>(output.bias);
          });
        });
    }
  }

  /// Of a lane's two neighbouring columns, whether it stages the second one first. Words of the first ones alone would
  /// be those of half the banks.
  __device__ static bool second_first() {
    if (sizeof(Element) == 2 || C.stride.w == 1) return false;
    return slots >= 8 ? lane_index() % 4 >= 2 : line_of_lane() % 2 != 0;
  }

  /// Whether two neighbouring outputs are one store: all lines are aligned for it.
  template <int Index>
  __device__ static bool stage_pairs(const Run& run, const Row<Index>& row) {
    if constexpr (C.stride.w > 1) return false;
    return __all_sync(0xffffffff, (skew_of<2>(run.at) + row.place + Row<Index>::first_column) % 2 == 0);
  }

  /// Calls `visit(n, column, whole)` for each eight columns of a row: the columns from 8n on are positions of the row
  /// from `column` on; all of them, but for the first and last ones.
  template <int Index, class Visit>
  __device__ static void each_eight(const Row<Index>& row, const Visit& visit) {
    constexpr int width = panel_run_width(C);
    constexpr int lowest = whole_rows ? ceil_div(row_lead(C), C.stride.w) : 0;
    constexpr int end = whole_rows ? width - most_beyond_row : width;
    constexpr int first = Row<Index>::first_column;
#pragma unroll
    for (int n = first / 8; n < ceil_div(first + width, 8); ++n) {
      const int column = n * 8 - first;
      visit(n, column, column >= lowest && column + 8 <= end);
    }
  }
  /// Whether a column of a row, which may be before it or behind, has an output of a phase.
  template <int Index>
  __device__ static bool is_of_row(const Row<Index>& row, int column, int phase) {
    if constexpr (whole_rows)
      return unsigned(column) < unsigned(panel_run_width(C)) &&
             unsigned(column * C.stride.w + phase - row_lead(C)) < unsigned(row.width);
    return unsigned(column) < unsigned(panel_run_width(C));
  }
  /// Calls `visit(to, sum)` for each of a lane's positions of a row; `at` is where the outputs of its first one go.
  template <int Index, class Visit>
  __device__ static void each_position(Element* at, const float (&sum)[columns / 2], int half, const Row<Index>& row,
                                       int phase, const Visit& visit) {
    const int swapped = second_first();
    Element* const at_of[2] = {at + (swapped ? C.stride.w : 0), at + (swapped ? 0 : C.stride.w)};
    each_eight(row, [&](int n, int column, bool whole) {
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (whole || is_of_row(row, column + first_column_of_lane() + (e ^ swapped), phase))
          visit(at_of[e] + column * C.stride.w, sum_of(sum, n, half, e, swapped));
    });
  }
  /// A lane's sum of one of two neighbouring columns, or of the other one.
  __device__ static float sum_of(const float (&sum)[columns / 2], int n, int half, int e, bool other) {
    const int first = n * 4 + half * 2;
    return other ? sum[first + 1 - e] : sum[first + e];
  }
  /// Where the outputs of a lane's first position are staged.
  __device__ static Element* staged_at(Element* staging, const Run& run) {
    return staging + run_of_lane() * line_stride + skew_of<vector>(run.at) + first_column_of_lane() * C.stride.w;
  }

  /// Stages outputs with those beside them that are the bias, in pairs that are aligned: with the next ones, or with
  /// those before; one is left then at the end of the run. The phase that has taps is the first: tap 0 is its.
  template <int Index>
  __device__ static void stage_beside_gaps(Element* staging, const Run& run, const float (&sum)[columns / 2],
                                           const RowOutput<C>& output, int half, const Row<Index>& row) {
    static_assert(phase_with_taps(C, 0) == 0);
    Element* const at = staged_at(staging, run);
    const int skew = skew_of<2>(run.at);
    each_position(at - skew, sum, half, row, 0, [&](Element* to, float value) {
      const float own = output(value);
      store_pair(to, skew ? output.bias : own, skew ? own : output.bias);
    });
    if (skew && lane_index() % 4 == 0) at[2 * panel_run_width(C) - 1] = to_element<Element>(output.bias);
  }

  template <bool Pairs, int Index>
  __device__ static void stage_run(Element* staging, const Run& run, const float (&sum)[columns / 2],
                                   const RowOutput<C>& output, int half, const Row<Index>& row) {
    Element* const at = staged_at(staging, run) + row.place;
    if constexpr (Pairs) {
      each_eight(row, [&](int n, int column, bool whole) {
        const float low = output(sum[n * 4 + half * 2]), high = output(sum[n * 4 + half * 2 + 1]);
        if (whole) return store_pair(at + column, low, high);
        const int own = column + first_column_of_lane();
        if (is_of_row(row, own, 0)) at[column] = to_element<Element>(low);
        if (is_of_row(row, own + 1, 0)) at[column + 1] = to_element<Element>(high);
      });
    } else {
      stage_each(output, half, [&](int phase, const auto& visit) { each_position(at, sum, half, row, phase, visit); });
    }
  }

  __device__ static void stage_flat(Element* staging, const float (&sum)[columns / 2], const RowOutput<C>& output,
                                    int half, int product) {
    constexpr int pitch = x_extent(C).w, rows = runs_per_line;
    Element* const at = staging + run_of_lane() * line_stride + line_of_lane() % run_lines * (C.box.w * C.stride.w) +
                        panel_flat_skew(C);
    // Places are worked out again for each half of the rows: there are not registers enough to keep them.
    int own = first_column_of_lane();
    asm volatile("" : "+r"(own));
    const int swapped = second_first();
    Element* const own_at = at + own * C.stride.w;
    Element* const at_of[2] = {own_at + (swapped ? C.stride.w : 0), own_at + (swapped ? 0 : C.stride.w)};
    stage_each(output, half, [&](int, const auto& visit) {
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
          const float value = sum_of(sum, n, half, e, swapped);
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

  /// The run of a lane that stages it.
  __device__ static Run run_of(const Run& run, int lane) {
    const u64 at = reinterpret_cast<u64>(run.at);
    const u32 low = __shfl_sync(0xffffffff, u32(at), lane), high = __shfl_sync(0xffffffff, u32(at >> 32), lane);
    const u32 ends = __shfl_sync(0xffffffff, u32(run.first) | u32(run.end) << 16, lane);
    Run result;
    result.at = reinterpret_cast<Element*>(u64(low) | u64(high) << 32);
    result.first = static_cast<unsigned short>(ends), result.end = static_cast<unsigned short>(ends >> 16);
    return result;
  }

  /// What a run is stored from: where its vectors are staged,
  struct Staged {
    const Element* from;
    __device__ uint4 vector_at(int index) const { return *reinterpret_cast<const uint4*>(from + index); }
    __device__ Element element_at(int index) const { return from[index]; }
  };
  /// or one number.
  struct Filled {
    u32 bits;
    __device__ explicit Filled(u32 of_element) : bits(of_element) {}
    __device__ uint4 vector_at(int) const {
      const u32 word = sizeof(Element) == 2 ? bits | bits << 16 : bits;
      return make_uint4(word, word, word, word);
    }
    __device__ Element element_at(int) const { return element_of<Element>(bits); }
  };

  /// Vectors are aligned in memory and in the staging buffer, and the first one may begin before the run: where a lane
  /// stores, and from where, is a constant from its first vector on. `source_of(line)` is what the run of a line is
  /// stored from.
  template <class Source>
  __device__ static void store_runs(const Run& of_lane, const Source& source_of) {
    constexpr int lanes = run_lanes, unit = whole_unit, together = 4;
    constexpr int vectors = run_stride / vector + (long_runs ? 7 : 0);  // from the beginning of a line of memory on
    const int index = lane_index() % lanes;
#pragma unroll
    for (int line = 0; line < pass_runs; line += warp_size / lanes) {
      const int own = line + lane_index() / lanes;
      const Run run = lanes == own_lanes ? of_lane : run_of(of_lane, own * own_lanes);
      const auto source = source_of(own);
      const int skew = skew_of<vector>(run.at), begin = run.first + skew, end = run.end + skew;
      Element* const to = run.at - skew;
      // Outputs from `head` to `tail` are whole vectors, or whole sectors.
      const int place = index - (long_runs ? int(reinterpret_cast<u64>(to) / 16 % 8) : 0);
      const int lead = long_runs ? skew_of<unit>(to) : 0;
      const int head = min(round_up(begin + lead, unit) - lead, end), tail = max(head, ((end + lead) & -unit) - lead);
      const u32 from_head = u32(place * vector - head), whole = u32(tail - head);
      Element* own_to = to + place * vector;
      asm volatile("" : "+l"(own_to));  // or it would be worked out again for each store
#pragma unroll
      for (int first = 0; first < vectors; first += lanes * together) {
        uint4 value[together];
        bool exists[together];
#pragma unroll
        for (int i = 0; i < together; ++i) {
          const int next = first + i * lanes;
          exists[i] = next < vectors && from_head + u32(next * vector) < whole;
          if (long_runs ? exists[i] : next + place < vectors) value[i] = source.vector_at((place + next) * vector);
        }
#pragma unroll
        for (int i = 0; i < together; ++i)
          if (exists[i]) ptx::store(own_to + (first + i * lanes) * vector, value[i]);
      }
      // What is before them and behind them, a lane each.
      const auto store_element = [&](int own, int limit) {
        if (own < limit) ptx::store(to + own, source.element_at(own));
      };
      if constexpr (lanes >= 2 * unit && !beside_gap) {  // together; beside gaps that was slower (docs/kernels.md)
        const bool behind = index >= lanes / 2;
        store_element(behind ? tail + index - lanes / 2 : begin + index, behind ? end : head);
      } else {
        store_element(begin + index, head);
        store_element(tail + index, end);
      }
    }
  }

  // ---- Flat products: a run is a row of a line, or a slice of rows that follow one another --------------------------
  // Runs are described once for a tile, lines once for a pass.

  static constexpr int line_runs = flat_runs_of_line(C);
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
  static constexpr int flat_runs = pass_runs * line_runs;  // of a pass
  static_assert(!(C.panel_flat && whole_rows) || C.run_rows == C.box.h);

  __device__ static void store_flat(const ForwardParams& p, const Tile& tile, unsigned char* memory) {
    // Of every run the same outputs exist.
    const int ow = tile.origin.w * C.stride.w - C.padding.w;
    const int rows = min(C.run_rows * run_lines, p.out.h - (tile.origin.h * C.stride.h - C.padding.h));
    const int first = max(0, -ow),
              end = max(whole_rows ? rows * p.out.w : min(C.box.w * C.stride.w, p.out.w - ow), first);
    // Strides of dimensions of size 1 are never stepped along.
    const i64 strides = p.ys.c | (p.batch > 1 ? p.ys.n : 0) | (p.out.d > 1 ? p.ys.d : 0) |
                        (p.out.h > (whole_rows ? C.box.h * run_lines : 1) ? p.ys.h : 0);
    const bool in_memory = (reinterpret_cast<i64>(p.y) / int(sizeof(Element)) | strides | ow + first) % vector == 0;
    // Slices are staged one after the other, with the rows of their halo between them.
    constexpr bool in_staging = !whole_rows || run_stride * x_extent(C).h % vector == 0;
    if (in_memory && in_staging && (panel_flat_skew(C) + first) % vector == 0)
      store_flat_aligned(p, memory, first, end);
    else
      store_flat_joined(p, memory, first, end);
  }

  /// Runs are in memory as they are staged. A lane has the same vectors of several runs.
  __device__ static void store_flat_aligned(const ForwardParams& p, unsigned char* memory, int first, int end) {
    constexpr int most = ceil_div(C.run_rows * run_lines * C.box.w * C.stride.w, vector),
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
  __device__ static void store_flat_joined(const ForwardParams& p, unsigned char* memory, int first, int end) {
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
