// The march kernel (sm_90a): layers of stride 1 along the depth, slice by slice of x.
//
//   rows     positions of a slice, 64 for each product
//   columns  (slot, output channel): the output slices that this slice of x reaches, as many as there are taps along
//            the depth
//   depth    for each chunk of channels, for each tap along height and width: octets of channel words
//
// A block marches through its tile along the depth. A slice of x is fetched and turned once, and multiplied by all
// weights that it meets; with it one slice of outputs is complete, is staged, and leaves. The sums of the others move
// up by one slot. So x has no halo along the depth, no row of a product is idle however few the output channels are,
// and a product is wide.
//
// Of what is staged every thread says for itself that it is written or read: where the assembler knows that lanes have
// not parted, it leaves __syncwarp() out, and sanitizers do not see what one lane says for all.
//
// Loading warpgroups fill panels (panel/fill.cuh), one warpgroup stores what is staged, the others multiply, each its
// own positions. Weights stay in shared memory. Layers of two dimensions march along their height.
//
// C is the configuration (gemm_config.cuh), Tables the generated tables, Wgmma the instruction (codegen.cpp).
#pragma once

#include "march/outputs.cuh"
#include "march/products.cuh"
#include "march/shared.cuh"
#include "march/slices.cuh"
#include "panel/fill.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables, class Wgmma>
struct MarchGemm {
  static constexpr int threads = march_threads(C);
  using Roles = MarchRoles<C>;
  using Shared = MarchShared<C>;
  using Schedule = TeamSchedule<C, Tables>;
  using Products = MarchProducts<C, Tables, Wgmma>;
  using Staging = MarchStaging<C, Tables>;
  using Place = MarchPlace<C>;
  using Buffers = Ring<C.stage_buffers>;

  __device__ static void run(const ForwardParams& p) {
    ptx::let_next_begin();
    const Shared shared;
    constexpr int warps = warpgroup_size / warp_size;
    if (threadIdx.x == 0) {
      ptx::barrier_init(shared.weights_resident(), 1);
      for (int i = 0; i < C.panel_stages; ++i) {
        ptx::barrier_init(shared.panel_full(i), C.loaders * warps);
        ptx::barrier_init(shared.panel_empty(i), C.box_parts * warps);
      }
      for (int i = 0; i < C.stage_buffers; ++i) {
        ptx::barrier_init(shared.staged_full(i), C.box_parts * warpgroup_size);
        ptx::barrier_init(shared.staged_empty(i), warpgroup_size);
      }
      ptx::barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < Roles::storing) {
      ask_for<march_loading_registers(C)>();
      using Fill = PanelFill<slice_of(C), Roles, Shared, MarchSchedule<C, Tables>>;
      Fill::load_x(p, shared);
    } else if (threadIdx.x < Roles::multiplying) {
      ask_for<march_storing_registers>();
      store(p, shared);
    } else {
      ask_for<march_multiplying_registers(C)>();
      multiply(p, shared);
    }
  }

  /// Registers of a kind of warpgroup: all of them together have what the block began with.
  template <int Registers>
  __device__ static void ask_for() {
    if constexpr (Registers > march_entry_registers(C)) ptx::registers_increase<Registers>();
    if constexpr (Registers < march_entry_registers(C)) ptx::registers_decrease<Registers>();
  }

  __device__ static void multiply(const ForwardParams& p, const Shared& shared) {
    const typename Products::Operands operands(shared);
    typename Products::Panels panel;
    Buffers staged;
    Roles::channels_described();
    ptx::barrier_wait(shared.weights_resident(), 0);
    for (Schedule schedule(p, 0); !schedule.done(); schedule.advance()) {
      const Tile tile = schedule.tile(p);
      const March<C> march(p, tile);
      const Staging staging(p, Place(p, tile));
      PanelSums<C> sum;
      clear_sums<C>(sum);
      u32 scale = any_scale;
#pragma unroll 1
      for (int slice = march.x_first; slice < march.end; ++slice) {
        if (slice < march.x_end) Products::multiply(sum, scale, shared, operands, panel);
        if (slice >= march.first) {
          ptx::barrier_wait(shared.staged_empty(staged.slot), staged.parity ^ 1);
          staging.stage(p, shared.staged + staged.slot * march_staged_bytes(C), sum, shared.outputs, slice, scale);
          ptx::barrier_arrive(shared.staged_full(staged.slot));
          staged.advance();
        }
        Staging::advance(sum);
      }
    }
  }

  __device__ static void store(const ForwardParams& p, const Shared& shared) {
    ptx::wait_for_previous();
    Schedule schedule(p, 0);
    if (threadIdx.x == Roles::storing) load_resident_weights<C, Tables>(p, shared.weights, shared.weights_resident());
    describe_channels(p, schedule, shared);
    Roles::channels_described();
    Buffers staged;
    for (; !schedule.done(); schedule.advance()) {
      const Tile tile = schedule.tile(p);
      const March<C> march(p, tile);
      const Place place(p, tile);
#pragma unroll 1
      for (int slice = march.first; slice < march.end; ++slice) {
        ptx::barrier_wait(shared.staged_full(staged.slot), staged.parity);
        Staging::store(p, shared.staged + staged.slot * march_staged_bytes(C), place, slice);
        ptx::barrier_arrive(shared.staged_empty(staged.slot));
        staged.advance();
      }
    }
  }

  /// The channels of the block: it keeps to them.
  __device__ static void describe_channels(const ForwardParams& p, const Schedule& schedule, const Shared& shared) {
    const Tile tile = Tile::decode<C>(p, schedule.block, 0);
    for (int i = threadIdx.x - Roles::storing; i < slot_rows(C); i += warpgroup_size) {
      const int local = tile.channel_block * C.channels_per_block + i;
      ChannelOutput output{0, 1};
      if (i < C.channels_per_block && local < C.group_out) {
        const int channel = tile.group * C.group_out + local;
        if (p.bias) output.bias = load_as_accumulator(static_cast<const ElementOf<C>*>(p.bias)[channel]);
        if constexpr (scales(C.math)) output.scale = p.scales[channel];
      }
      shared.outputs[i] = output;
    }
  }
};

}  // namespace tconv::device
