// The epilogue of the panel kernel. A warp stores its 16 rows of the product by itself, eight at a time or, where they
// are one line, all 16, through shared memory of its own: as runs of outputs, of rows of positions
// (panel_row_store.cuh) or of the whole box (panel_flat_store.cuh).
#pragma once

#include "epilogue/panel_flat_store.cuh"
#include "epilogue/panel_lines.cuh"
#include "epilogue/panel_row_store.cuh"
#include "epilogue/panel_runs.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelStore {
  using Lines = PanelLines<C, Tables>;
  using Outputs = typename Lines::Outputs;
  __device__ static int channel_of_half(const Tile& tile, int half) { return Lines::channel_of_half(tile, half); }

  /// Stores a tile, or the part of it that begins with product `first_product`, through `memory`, which is the warp's
  /// own.
  __device__ static void store(const ForwardParams& p, const Tile& tile, unsigned char* memory, const Outputs& outputs,
                               const typename Lines::Sums& sum, int first_product) {
    if constexpr (C.panel_flat)
      PanelFlatStore<C, Tables>::store(p, tile, memory, outputs, sum);
    else
      PanelRowStore<C, Tables>::store(p, tile, memory, outputs, sum, first_product);
  }

  /// Stores a tile of a type without taps, or a part of it: the bias, everywhere.
  __device__ static void fill(const ForwardParams& p, const Tile& tile, const Outputs& outputs, int first_product) {
    using Element = ElementOf<C>;
    using Runs = PanelRuns<C, Tables>;
    constexpr int runs = C.panel_flat ? box_rows(C) : member_runs(C);
#pragma unroll
    for (int half = 0; half < 2; half += Lines::halves) {
      if (C.rows < panel_rows && Lines::first_line(half) * C.width_slots >= C.rows) break;
      const typename Lines::LineRuns line(p, tile, Lines::first_line(half) + Lines::run_of_lane() * Lines::run_lines);
      const u32 bias = bits_of(to_element<Element>(outputs.of_half[half].bias));
#pragma unroll 1
      for (int i = 0; i < runs; ++i) {
        const auto run = C.panel_flat
                             ? line.piece(p, tile, i / C.box.h / C.box.d, i / C.box.h % C.box.d, i % C.box.h, 0)
                             : line.of_product(p, tile, first_product + i / product_runs(C) * run_products(C),
                                               i % product_runs(C) * C.run_rows);
        Runs::store_runs(
            run, [&](int own) { return typename Runs::Filled(__shfl_sync(0xffffffff, bias, own * Runs::own_lanes)); });
      }
    }
  }
};

}  // namespace tconv::device
