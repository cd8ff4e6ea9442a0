// Products of the march kernel: a slice of x by the weights of all slices of outputs that it reaches. Positions are the
// rows of a product, and (slot, channel) its columns: slot 0 is the output slice that is complete with this slice of x,
// the next ones follow it.
#pragma once

#include "march/shared.cuh"
#include "mma/scale.cuh"
#include "panel/scaled_sums.cuh"
#include "ptx/wgmma.cuh"
#include "team.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables, class Wgmma>
struct MarchProducts {
  static constexpr GemmConfig slice = slice_of(C);
  static constexpr int tiles = C.position_tiles, columns = C.rows, octets = substeps_of(C);
  static constexpr int group_steps = C.steps_per_slab, step_bytes = weight_parts(C) * row_step_bytes(C);
  static constexpr int registers = columns / 2, part_steps = split_steps(C);
  static constexpr bool scaled = scales(C.math);
  using Sums = PanelSums<C>;
  using Panels = Ring<C.panel_stages>;
  using Shared = MarchShared<C>;

  /// Descriptors of a member's positions in the first slot, and of the first weights.
  struct Operands {
    u64 x, weights;
    __device__ explicit Operands(const Shared& shared)
        : x(ptx::wgmma_panel(ptx::shared_address(shared.panels) + MarchRoles<C>::member() * tiles * panel_rows * 16,
                             panel_slice_bytes(slice))),
          weights(ptx::wgmma_operand(shared.weights)) {}
  };
  /// A descriptor so many bytes further: a constant away; or made uniform.
  __device__ static u64 further(u64 operand, int bytes) { return operand + u64(bytes / 16); }
  __device__ static u64 uniform_further(u64 operand, int bytes) {
    const u32 low = u32(operand) + u32(bytes) / 16;
    return (operand & 0xffffffff00000000) | __shfl_sync(0xffffffff, low, 0);
  }

  /// Adds the products of a slice. `scale` is that of the sums.
  __device__ static void multiply(Sums& sum, u32& scale, const Shared& shared, const Operands& first, Panels& panel) {
#pragma unroll 1
    for (int chunk = 0; chunk < chunks_of(C); ++chunk) {
      ptx::barrier_wait(shared.panel_full(panel.slot), panel.parity);
      const u32 of_panel = scaled ? scale_of(shared, panel) : 0;
      if constexpr (C.math == Math::half) adopt(of_panel, scale, sum);
#pragma unroll 1
      for (int step = 0; step < C.resident_steps; step += group_steps) {
        const u64 weights =
            uniform_further(first.weights, (resident_place(C, chunk) + slab_place(C, 0, step)) * step_bytes);
        u64 x[group_steps];
#pragma unroll
        for (int s = 0; s < group_steps; ++s)
          x[s] = uniform_further(first.x, panel.slot * panel_bytes(slice) + Tables::low_offset(step + s) * 16);
        if constexpr (splits(C.math))
          add_parts(sum, weights, x, power_of_two(undone(of_panel)));
        else
          add(sum, weights, x);
      }
      ptx::wgmma_wait<0>();
      // Nothing is read of the sums before this.
#pragma unroll
      for (int t = 0; t < tiles; ++t) ptx::wgmma_sums(sum[t]);
      if constexpr (scaled) __syncwarp();  // all lanes have read the scale
      release(shared.panel_empty(panel.slot));
      panel.advance();
    }
  }

 private:
  __device__ static u32 scale_of(const Shared& shared, const Panels& panel) {
    return *reinterpret_cast<const u32*>(shared.panels + panel.slot * panel_bytes(slice) + panel_scale_place(slice));
  }

  /// Brings sums to the scale of the panel that is added next: within a tile, scales never grow.
  __device__ static void adopt(u32 of_panel, u32& scale, Sums& sum) {
    if (__shfl_sync(0xffffffff, of_panel, 0) == scale) return;
    const float change = change_of_scale(scale, of_panel);
    const bool began = scale != any_scale;
    scale = of_panel;
    if (!began) return;
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      ptx::wgmma_sums(sum[t]);
#pragma unroll
      for (int r = 0; r < registers; ++r) sum[t][r] *= change;
    }
  }

  __device__ static void add(Sums& sum, u64 weights, const u64 (&x)[group_steps]) {
    // They have moved up by a slot.
#pragma unroll
    for (int t = 0; t < tiles; ++t) ptx::wgmma_sums(sum[t]);
    ptx::wgmma_fence();
#pragma unroll
    for (int s = 0; s < group_steps; ++s)
#pragma unroll
      for (int o = 0; o < octets; ++o)
#pragma unroll
        for (int t = 0; t < tiles; ++t)
          Wgmma::multiply(sum[t], x_at(x[s], o, t), further(weights, slab_place(C, o, s) * step_bytes), true);
    ptx::wgmma_commit();
  }

  /// Heads and remainders: the small products first, and few at a time (split_products.cuh).
  __device__ static void add_parts(Sums& sum, u64 weights, const u64 (&x)[group_steps], float scale) {
#pragma unroll
    for (int first = 0; first < group_steps; first += part_steps)
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        float part[registers];
        ptx::wgmma_fence();
#pragma unroll
        for (int product = 0; product < 3; ++product)
#pragma unroll
          for (int s = first; s < min_of(first + part_steps, group_steps); ++s)
#pragma unroll
            for (int o = 0; o < octets; ++o)
              Wgmma::multiply(
                  part, further(x_at(x[s], o, t), product == 1 ? panel_part_bytes(slice) : 0),
                  further(weights, slab_place(C, o, s) * step_bytes + (product == 0 ? row_step_bytes(C) : 0)),
                  product + s - first + o > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        ptx::wgmma_sums(part);
#pragma unroll
        for (int r = 0; r < registers; ++r) sum[t][r] = fmaf(part[r], scale, sum[t][r]);
      }
  }

  __device__ static u64 x_at(u64 x, int octet, int tile) {
    return further(x, octet * 2 * panel_slice_bytes(slice) + tile * panel_rows * 16);
  }
};

}  // namespace tconv::device
