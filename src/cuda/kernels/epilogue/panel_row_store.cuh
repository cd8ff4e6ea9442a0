// The epilogue of the panel kernel where a product is a piece of a row of positions, or covers several rows one after
// the other. Runs are staged at the alignment they have in memory, so that all but their ragged ends leave 16 bytes at
// a time. Where rows are whole rows of outputs, which follow one another in memory, several are one run: those of all
// phases along the height, and of several rows of positions. Outputs of phases without taps are between the others
// then, and all of the run is the bias before these are staged.
#pragma once

#include "epilogue/panel_lines.cuh"
#include "epilogue/panel_runs.cuh"
#include "epilogue/panel_staging.cuh"
#include "epilogue/vector_store.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelRowStore {
  using Lines = PanelLines<C, Tables>;
  using Staging = PanelStaging<C, Tables>;
  using Runs = PanelRuns<C, Tables>;
  using Element = ElementOf<C>;
  using Run = typename Lines::Run;
  static constexpr int columns = C.panel_columns, line_stride = panel_line_stride(C), vector = store_vector(C);
  static constexpr bool has_gaps = Lines::whole_rows && runs_have_gaps(C);

  /// Stores a tile, or the part of it that begins with product `first_product`, through `memory`, which is the warp's
  /// own.
  __device__ static void store(const ForwardParams& p, const Tile& tile, unsigned char* memory,
                               const typename Lines::Outputs& outputs, const typename Lines::Sums& sum,
                               int first_product) {
    Element* const staging = reinterpret_cast<Element*>(memory);
#pragma unroll
    for (int first_half = 0; first_half < 2; first_half += Lines::halves) {
      if (C.rows < panel_rows && Lines::first_line(first_half) * C.width_slots >= C.rows) break;
      if (!Lines::stores(tile, first_half)) continue;
      // Calls `stage(half)` for each half of the rows that is stored with this one.
      const auto each_half = [&](const auto& stage) {
#pragma unroll
        for (int i = 0; i < Lines::halves; ++i) stage(first_half + i);
      };
      const typename Lines::LineRuns line(p, tile,
                                          Lines::first_line(first_half) + Lines::run_of_lane() * Lines::run_lines);
      Run run;
      const auto store_row = [&](int t, auto index) {
        const int of_run = (C.product_rows == 1 ? t : index.value) % C.run_rows;
        if (of_run == 0) {
          run = line.of_product(p, tile, first_product + t, index.value);
          if constexpr (has_gaps) {
            fill_run(staging, run, outputs.of_half[first_half].bias);
            __syncwarp();
          }
        }
        const Row<index.value> row{(of_run * run_height(C) + Lines::row_of_lane()) * p.out.w, p.out.w};
        if constexpr (C.row_pairs && !has_gaps)
          stage_paired_rows(staging, run, sum[t], outputs.of_half[0], row);
        else
          each_half([&](int half) {
            if constexpr (has_gaps)
              stage_between_gaps(staging, run, sum[t], outputs.of_half[half], half, row);
            else if constexpr (Lines::beside_gap)
              stage_beside_gaps(staging, run, sum[t], outputs.of_half[half], half, row);
            else if (stage_pairs(run, row))
              stage_run<true>(staging, run, sum[t], outputs.of_half[half], half, row);
            else
              stage_run<false>(staging, run, sum[t], outputs.of_half[half], half, row);
          });
        if (of_run + 1 == C.run_rows || (C.product_rows > 1 && index.value + 1 == C.product_rows)) {
          __syncwarp();
          Runs::store_runs(run, [&](int own) { return typename Runs::Staged{staging + own * line_stride}; });
          __syncwarp();
        }
      };
#pragma unroll
      for (int t = 0; t < C.position_tiles; ++t) unrolled<C.product_rows>([&](auto index) { store_row(t, index); });
    }
  }

 private:
  /// Row `Index` of the product: where its outputs are staged behind those of the run's first row, and how many there
  /// are. (Which sums are whose must be plain to the compiler, or it has them in memory.)
  template <int Index>
  struct Row {
    static constexpr int first_column = Index * x_extent(C).w;
    int place, width;
  };

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
    constexpr int lowest = Lines::whole_rows ? ceil_div(row_lead(C), C.stride.w) : 0;
    constexpr int end = Lines::whole_rows ? width - most_beyond_row : width;
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
    if constexpr (Lines::whole_rows)
      return unsigned(column) < unsigned(panel_run_width(C)) &&
             unsigned(column * C.stride.w + phase - row_lead(C)) < unsigned(row.width);
    return unsigned(column) < unsigned(panel_run_width(C));
  }
  /// Calls `visit(to, sum)` for each of a lane's positions of a row; `at` is where the outputs of its first one go.
  template <int Index, class Visit>
  __device__ static void each_position(Element* at, const float (&sum)[columns / 2], int half, const Row<Index>& row,
                                       int phase, const Visit& visit) {
    const int swapped = Staging::second_first(at + phase);
    Element* const at_of[2] = {at + (swapped ? C.stride.w : 0), at + (swapped ? 0 : C.stride.w)};
    each_eight(row, [&](int n, int column, bool whole) {
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (whole || is_of_row(row, column + Lines::first_column_of_lane() + (e ^ swapped), phase))
          visit(at_of[e] + column * C.stride.w, Staging::sum_of(sum, n, half, e, swapped));
    });
  }
  /// Where the outputs of a lane's first position are staged.
  __device__ static Element* staged_at(Element* staging, const Run& run) {
    return staging + Lines::run_of_lane() * line_stride + skew_of<vector>(run.at) +
           Lines::first_column_of_lane() * C.stride.w;
  }

  /// Stages the bias everywhere in a run.
  __device__ static void fill_run(Element* staging, const Run& run, float bias) {
    constexpr int lanes = Runs::own_lanes;
    const typename Runs::Filled filled(bits_of(to_element<Element>(bias)));
    uint4* const at = reinterpret_cast<uint4*>(staging + Lines::run_of_lane() * line_stride);
    const int end = (skew_of<vector>(run.at) + run.end + vector - 1) / vector;
#pragma unroll 4
    for (int i = lane_index() % lanes; i < end; i += lanes) at[i] = filled.vector_at(0);
  }
  template <int Index>
  __device__ static void stage_between_gaps(Element* staging, const Run& run, const float (&sum)[columns / 2],
                                            const RowOutput<C>& output, int half, const Row<Index>& row) {
    const int phase = phase_of_slot<C>(Lines::slot_of_lane(half));
    if (phase < 0) return;
    each_position(staged_at(staging, run) + row.place, sum, half, row, phase,
                  [&](Element* to, float value) { to[phase] = to_element<Element>(output(value)); });
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

  /// Both rows of a lane, which are phases of one line. Lanes of all lines take the words that suit all of them.
  template <int Index>
  __device__ static void stage_paired_rows(Element* staging, const Run& run, const float (&sum)[columns / 2],
                                           const RowOutput<C>& output, const Row<Index>& row) {
    using Grouped = typename Staging::Grouped;
    // Of a lane's outputs in the first eight columns of the row, and so of all: behind a multiple of four.
    const int place = skew_of<4>(run.at) + row.place - Row<Index>::first_column * C.stride.w;
    const auto all = [&](int residue, int of) { return __all_sync(0xffffffff, (place & (of - 1)) == residue); };
    if (Staging::outputs_follow && all(0, 4))
      stage_paired_as<Grouped::quads>(staging, run, sum, output, row);
    else if (all(0, 2))
      stage_paired_as<Grouped::pairs>(staging, run, sum, output, row);
    else if (Staging::outputs_follow && all(1, 2))
      stage_paired_as<Grouped::middle>(staging, run, sum, output, row);
    else
      stage_paired_as<Grouped::elements>(staging, run, sum, output, row);
  }
  template <typename Staging::Grouped by, int Index>
  __device__ static void stage_paired_as(Element* staging, const Run& run, const float (&sum)[columns / 2],
                                         const RowOutput<C>& output, const Row<Index>& row) {
    // Those that the line does not have are not compiled either.
    if constexpr (!Staging::outputs_follow && (by == Staging::Grouped::quads || by == Staging::Grouped::middle)) return;
    const int phase = Lines::slot_of_lane(0);
    Element* const at = staged_at(staging, run) + row.place + phase;
    each_eight(row, [&](int n, int column, bool whole) {
      Element* const to = at + column * C.stride.w;
      if (whole) return Staging::template stage_paired<by>(to, sum, n, output);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int next = i / 2, second = i % 2;
        if (is_of_row(row, column + Lines::first_column_of_lane() + next, phase + second))
          to[next * C.stride.w + second] = to_element<Element>(output(sum[n * 4 + second * 2 + next]));
      }
    });
  }

  template <bool Pairs, int Index>
  __device__ static void stage_run(Element* staging, const Run& run, const float (&sum)[columns / 2],
                                   const RowOutput<C>& output, int half, const Row<Index>& row) {
    Element* const at = staged_at(staging, run) + row.place;
    if constexpr (Pairs) {
      each_eight(row, [&](int n, int column, bool whole) {
        const float low = output(sum[n * 4 + half * 2]), high = output(sum[n * 4 + half * 2 + 1]);
        if (whole) return store_pair(at + column, low, high);
        const int own = column + Lines::first_column_of_lane();
        if (is_of_row(row, own, 0)) at[column] = to_element<Element>(low);
        if (is_of_row(row, own + 1, 0)) at[column + 1] = to_element<Element>(high);
      });
    } else {
      Staging::stage_each(output, half,
                          [&](int phase, const auto& visit) { each_position(at, sum, half, row, phase, visit); });
    }
  }
};

}  // namespace tconv::device
