// Products of the panel kernel where a number is one operand: TF32, 16 bits, and fp32 numbers that are scaled and
// rounded to fp16. All products of a tile are summed by the tensor core.
#pragma once

#include "panel/operands.cuh"
#include "panel/scaled_sums.cuh"
#include "panel/sums.cuh"
#include "panel/turns.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables, class Wgmma>
struct PanelProducts {
  static constexpr int octets = substeps_of(C), position_tiles = C.position_tiles, group_steps = C.steps_per_slab;
  static constexpr bool scaled = scales(C.math);
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  using Sums = PanelSums<C>;
  using Operands = PanelOperands<C, Tables>;
  using Weights = PanelWeights<C, Tables>;
  using ScaledSums = PanelScaledSums<C>;

  __device__ static void multiply(Sums& sum, RowOutput<C> (&outputs)[2], PanelWalk<C, Tables> walk, const Tile& tile,
                                  const Shared& shared, const typename Operands::First& first, Weights& weights,
                                  Ring<C.panel_stages>& panel, const PanelTurns<C>& turns) {
    using Offsets = typename Operands::Offsets;
    const int steps = Tables::steps(tile.type);
    const int entry = Tables::first_entry(tile.type);
    const int first_of_tile = first_chunk(C, tile.split), end_of_tile = first_chunk(C, tile.split + 1);
    // Where all products are one group, the first one overwrites the sums: zeros would be written inside the
    // group.
    constexpr bool one_group = chunks_of(C) == 1 && C.types == 1 && Operands::one_group_a_chunk();
    if constexpr (!one_group) clear_sums<C>(sum);
    if (steps == 0) return turns.pass();
    bool began = false, released = false;
    auto used_weights = weights.next;
    auto used_panel = panel;
    u32 scale = 0;  // of sums
    // The products so far are complete: what the last of them read may be overwritten.
    const auto hand_back = [&] {
      if (!began) return;
      weights.refill(used_weights);
      if (!released) release(shared.panel_empty(used_panel.slot));
      began = released = false;
    };
    const Offsets of_tile(entry);
#pragma unroll 1
    for (int chunk = first_of_tile; chunk < end_of_tile; walk.advance(chunk), panel.advance()) {
      // Where there are two slots and the next panel is not there yet, the one before it is handed back first: it is
      // what the loading threads wait for.
      if constexpr (C.panel_stages == 2) {
        if (began && !is_full(shared, panel)) {
          ptx::wgmma_wait<0>();
          release(shared.panel_empty(used_panel.slot));
          released = true;
        }
      }
      ptx::barrier_wait(shared.panel_full(panel.slot), panel.parity);
      if constexpr (scaled) {
        const uint2 of_panel = ScaledSums::scale_of(shared, panel);
        if (chunk == first_of_tile) {
          scale = of_panel.x;
        } else if (__shfl_sync(0xffffffff, of_panel.x, 0) != scale && !ScaledSums::adopt(of_panel, scale, sum)) {
          hand_back();
          skip(walk, steps, shared, weights);
          release(shared.panel_empty(panel.slot));
          continue;
        }
        __syncwarp();  // all lanes have read the scale before one of them hands the panel back
      }
      Operands::each_group(walk, steps, [&](int step) {
        const typename Operands::Group operands(first, Operands::slab_place_of(weights, chunk, step), panel.slot,
                                                Operands::one_group_a_chunk() ? of_tile : Offsets(entry + step));
        if constexpr (!Operands::resident)
          ptx::barrier_wait(shared.weights_full(Roles::block(), weights.next.slot), weights.next.parity);
        ptx::wgmma_fence();
#pragma unroll
        for (int s = 0; s < group_steps; ++s) {
          const u64 w = operands.weights, x = operands.x[s];
#pragma unroll
          for (int o = 0; o < octets; ++o)
#pragma unroll
            for (int t = 0; t < position_tiles; ++t)
              Wgmma::multiply(sum[t], Operands::further(w, Operands::weights_at(o, s)),
                              Operands::further(x, Operands::x_at(o, t)), !one_group || s + o > 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        // The products before these are complete: what they read may be overwritten.
        if (began) {
          weights.refill(used_weights);
          if (step == walk.first_step() && !released) release(shared.panel_empty(used_panel.slot));
          released = false;
        }
        used_weights = weights.next;
        began = true;
        weights.next.advance();
      });
      used_panel = panel;
    }
    turns.pass();
    ptx::wgmma_wait<0>();
    // Nothing is read of the sums before this.
#pragma unroll
    for (int t = 0; t < position_tiles; ++t) ptx::wgmma_sums(sum[t]);
    hand_back();
    if constexpr (scaled) ScaledSums::unscale(scale, sum, outputs);
  }

 private:
  /// Whether a panel is there already; the same for all lanes of a warp.
  __device__ static bool is_full(const Shared& shared, const Ring<C.panel_stages>& panel) {
    const bool full = ptx::barrier_test(shared.panel_full(panel.slot), panel.parity);
    return __shfl_sync(0xffffffff, u32(full), 0) != 0;
  }

  /// The weights of a chunk that is not multiplied.
  __device__ static void skip(const PanelWalk<C, Tables>& walk, int steps, const Shared& shared, Weights& weights) {
    Operands::each_group(walk, steps, [&](int) {
      if constexpr (!Operands::resident)
        ptx::barrier_wait(shared.weights_full(Roles::block(), weights.next.slot), weights.next.parity);
      weights.refill(weights.next);
      weights.next.advance();
    });
  }
};

}  // namespace tconv::device
