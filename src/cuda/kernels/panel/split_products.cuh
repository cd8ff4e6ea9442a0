// Products of the panel kernel where a number is two operands, a head and a remainder: fp32 split into TF32 numbers or
// into scaled fp16 ones.
//
// A few products are summed by the tensor core, which truncates, and added to the others by the fp32 adder, which
// rounds to nearest. Few, since truncation has a direction; not one at a time, since every addition rounds. While the
// sums of one product are added, the next one is formed.
#pragma once

#include "panel/operands.cuh"
#include "panel/scaled_sums.cuh"
#include "panel/store.cuh"
#include "panel/sums.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables, class Wgmma>
struct PanelSplitProducts {
  static constexpr int octets = substeps_of(C), group_steps = C.steps_per_slab, part_steps = split_steps(C);
  static constexpr int position_tiles = C.position_tiles, registers = C.panel_columns / 2;
  static constexpr bool scaled = scales(C.math);
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  using Sums = PanelSums<C>;
  using Operands = PanelOperands<C, Tables>;
  using Weights = PanelWeights<C, Tables>;

  __device__ static void multiply(Sums& sum, const ForwardParams& p, const Tile& tile, const Shared& shared,
                                  const typename Operands::First& first, Weights& weights,
                                  Ring<C.panel_stages>& panel) {
    using Offsets = typename Operands::Offsets;
    const int steps = Tables::steps(tile.type);
    const int entry = Tables::first_entry(tile.type);
    clear_sums<C>(sum);
    if (steps == 0) return;
    const Offsets of_tile(entry);
    Unscale of_weights[2];  // of each of the thread's two rows
    if constexpr (scaled) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (const int channel = PanelEpilogue<C, Tables>::channel_of_half(tile, half); channel >= 0)
          of_weights[half] = Unscale(p.scales[channel]);
    }
    PanelWalk<C, Tables> walk(p, tile);
#pragma unroll 1
    for (int chunk = first_chunk(C, tile.split); chunk < first_chunk(C, tile.split + 1);
         walk.advance(chunk), panel.advance()) {
      ptx::barrier_wait(shared.panel_full(panel.slot), panel.parity);
      float scale[2];  // of products, undone
      if constexpr (scaled) {
        const float of_x = power_of_two(undone(PanelScaledSums<C>::scale_of(shared, panel).x));
        scale[0] = of_x * of_weights[0].of_part, scale[1] = of_x * of_weights[1].of_part;
      }
      Operands::each_group(walk, steps, [&](int step) {
        const typename Operands::Group operands(first, Operands::slab_place_of(weights, chunk, step), panel.slot,
                                                Operands::one_group_a_chunk() ? of_tile : Offsets(entry + step));
        if constexpr (!Operands::resident)
          ptx::barrier_wait(shared.weights_full(Roles::block(), weights.next.slot), weights.next.parity);
        constexpr int buffers = split_buffers(C);
        constexpr int parts = ceil_div(group_steps, part_steps) * position_tiles;
        float part[buffers][registers];
#pragma unroll
        for (int i = 0; i < parts + buffers - 1; ++i) {
          if (i < parts) issue(part[i % buffers], operands, i / position_tiles * part_steps, i % position_tiles);
          if (const int done = i - (buffers - 1); done >= 0) {
            if (i < parts && buffers == 2)
              ptx::wgmma_wait<1>();
            else
              ptx::wgmma_wait<0>();
#pragma unroll
            for (int r = 0; r < registers; ++r) {
              float& to = sum[done % position_tiles][r];
              const float value = part[done % buffers][r];
              to = scaled ? fmaf(value, scale[r / 2 % 2], to) : to + value;
            }
          }
        }
        weights.refill(weights.next);
        weights.next.advance();
      });
      if constexpr (scaled) __syncwarp();  // all lanes have read the scale
      release(shared.panel_empty(panel.slot));
    }
    if constexpr (scaled) {
#pragma unroll
      for (int t = 0; t < position_tiles; ++t)
#pragma unroll
        for (int r = 0; r < registers; ++r) sum[t][r] *= of_weights[r / 2 % 2].of_sum;
    }
  }

 private:
  /// The three products of heads and remainders, the small ones first: they are lost in nothing yet.
  __device__ static void issue(float (&part)[registers], const typename Operands::Group& operands, int first,
                               int tile) {
    ptx::wgmma_fence();
#pragma unroll
    for (int product = 0; product < 3; ++product)
#pragma unroll
      for (int s = first; s < min_of(first + part_steps, group_steps); ++s)
#pragma unroll
        for (int o = 0; o < octets; ++o)
          Wgmma::multiply(
              part,
              Operands::further(operands.weights, Operands::weights_at(o, s) + (product == 0 ? row_step_bytes(C) : 0)),
              Operands::further(operands.x[s], Operands::x_at(o, tile) + (product == 1 ? panel_part_bytes(C) : 0)),
              product + s - first + o > 0);
    ptx::wgmma_commit();
  }
};

}  // namespace tconv::device
