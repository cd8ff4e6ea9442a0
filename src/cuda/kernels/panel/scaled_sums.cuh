// Scales of panels (mma/scale.cuh), and of the sums of products that were scaled and not split.
#pragma once

#include "epilogue/row_output.cuh"
#include "mma/scale.cuh"
#include "panel/shared.cuh"
#include "panel/sums.cuh"
#include "ptx/wgmma.cuh"
#include "team.cuh"

namespace tconv::device {

template <GemmConfig C>
struct PanelScaledSums {
  static constexpr int position_tiles = C.position_tiles, registers = C.panel_columns / 2;
  using Sums = PanelSums<C>;

  /// The scale of a panel; and of turned x, whether all of the panel is finite.
  __device__ static uint2 scale_of(const PanelShared<C>& shared, const Ring<C.panel_stages>& panel) {
    return *reinterpret_cast<const uint2*>(shared.panels + panel.slot * panel_bytes(C) + panel_scale_place(C));
  }

  /// Brings sums to the scale of the panel that is added next. False if it is not to be added: nothing of it would be
  /// left beside the largest sums, which would not remain finite at its scale. (Of x that is not turned before, scales
  /// of a tile never grow.)
  __device__ static bool adopt(const uint2& of_panel, u32& scale, Sums& sum) {
    if (C.turned && (of_panel.x == any_scale || scale == any_scale)) {
      if (scale == any_scale) scale = of_panel.x;
      return true;
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int t = 0; t < position_tiles; ++t) ptx::wgmma_sums(sum[t]);
    const bool adds = !C.turned || int(of_panel.x) - int(scale) <= most_growth;
    float change = change_of_scale(scale, of_panel.x);
    if (!adds) change = of_panel.y ? 1 : __uint_as_float(0x7fffffff);  // what is not finite is not lost
#pragma unroll
    for (int t = 0; t < position_tiles; ++t)
#pragma unroll
      for (int r = 0; r < registers; ++r) sum[t][r] *= change;
    if (adds) scale = of_panel.x;
    return adds;
  }

  /// Undoes the scales of sums, or leaves it to the store. Of each of the thread's two rows.
  __device__ static void unscale(u32 scale, Sums& sum, RowOutput<C> (&outputs)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const UnscaleSum whole(scale, outputs[half].factor);
      const float now = C.depth_splits > 1 ? whole.factor * whole.rest : whole.rest;
      outputs[half].factor = C.depth_splits > 1 ? 1 : whole.factor;
      if (__all_sync(0xffffffff, now == 1)) continue;
#pragma unroll
      for (int t = 0; t < position_tiles; ++t)
#pragma unroll
        for (int r = 0; r < registers; ++r)
          if (r / 2 % 2 == half) sum[t][r] *= now;
    }
  }
};

}  // namespace tconv::device
