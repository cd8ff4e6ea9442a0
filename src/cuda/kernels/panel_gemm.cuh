// The panel kernel (sm_90a): the product on wgmma, with both operands in shared memory.
//
//   rows     64 (phase, output channel) rows of the plan
//   columns  positions, `panel_columns` for each product, `position_tiles` products side by side
//   depth    for each chunk of channels, for each step (a tap's shift): octets of channel words
//
// x passes through registers into panels (tiles/x_panel.cuh), once for all taps. Products then take nothing but
// descriptors: a wide product reads shared memory less than the tensor cores work.
//
// A block has one or two teams; a team is a warpgroup that fills panels, and one that multiplies and stores. While a
// team stores, or its x is under way, the tensor cores work for the other one, or for another block; where they are in
// one block, they multiply in turns. Or a team has several that multiply and read the same panels: each a channel block
// of its own, so that x is fetched and turned once for them; or parts of one box, so that weights are fetched once.
//
// Or x was turned into panels before, by a kernel of its own (turn_x.cuh), and one thread copies them: where many
// channel blocks read the same x, it is turned once for all. Or no tap reads a neighbour, and x needs no turning: in 16
// bits wgmma takes it as it lies, and one thread copies that by a tensor map.
//
// Where there are few tiles and many channels, tiles share the depth of a sum: each leaves its part in memory, and the
// last one to come adds them all, always in the same order, and stores. Or two are a cluster, and each adds half.
//
// Weights stay in shared memory where those of one row block fit, and the block keeps to that row block; elsewhere
// each team streams them through a ring.
//
// C is the configuration (gemm_config.cuh), Tables the generated tables, Wgmma the instruction (codegen.cpp).
#pragma once

#include "panel/cluster_sums.cuh"
#include "panel/fill.cuh"
#include "panel/products.cuh"
#include "panel/roles.cuh"
#include "panel/shared.cuh"
#include "panel/split_products.cuh"
#include "panel/store.cuh"
#include "panel/sums.cuh"
#include "panel/turns.cuh"
#include "panel/weights.cuh"
#include "ptx/launch.cuh"
#include "sizes/block.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables, class Wgmma>
struct PanelGemm {
  static constexpr int threads = warpgroup_size * warpgroups_of(C);
  static_assert(C.rows <= panel_rows);
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  using Weights = PanelWeights<C, Tables>;
  using Store = PanelEpilogue<C, Tables>;
  using Schedule = TeamSchedule<C, Tables>;
  using Fill = PanelFill<C, Roles, Shared, Schedule>;

  __device__ static void run(const ForwardParams& p) {
    ptx::let_next_begin();
    // Not a function of its own: the compiler would give everything behind it other registers.
    if (threadIdx.x == 0) {
      constexpr int warps = warpgroup_size / warp_size;
      for (int team = 0; team < C.teams; ++team) {
        const Shared shared(team);
        for (int i = 0; i < C.panel_stages; ++i) {
          ptx::barrier_init(shared.panel_full(i), copies_x(C) ? 1 : panel_loaders(C) / warp_size);
          ptx::barrier_init(shared.panel_empty(i), warps * members_of(C));
        }
        for (int block = 0; block < C.team_blocks; ++block)
          for (int i = 0; i < C.stages; ++i) {
            ptx::barrier_init(shared.weights_full(block, i), 1);
            ptx::barrier_init(shared.weights_empty(block, i), warps * C.box_parts);
          }
      }
      ptx::barrier_init(Shared::weights_resident(), 1);
      for (int i = 0; C.in_turns && i < multiplying_warpgroups(C); ++i) ptx::barrier_init(Shared::turn(i), warps);
      for (int i = 0; i < clustered_barriers(C); ++i) ptx::barrier_init(Shared::sums_full(i), warp_size);
      ptx::barrier_init_fence();
    }
    if constexpr (C.clustered)
      ptx::cluster_sync();
    else
      __syncthreads();
    const Shared shared(Roles::team());
    if (Roles::Loaders::index() < Roles::loaders) {
      ptx::registers_decrease<loading_registers(C)>();
      load(p, shared);
    } else {
      if constexpr (multiplying_registers(C) > entry_registers(C)) ptx::registers_increase<multiplying_registers(C)>();
      multiply_and_store(p, shared);
    }
    if constexpr (C.clustered) {  // a block that others write to does not end
      __syncwarp();
      ptx::cluster_sync();
    }
  }

  __device__ static void load(const ForwardParams& p, const Shared& shared) {
    constexpr bool resident = C.resident_steps > 0;
    if (resident && threadIdx.x == 0)
      load_resident_weights<C, Tables>(p, shared.resident_weights, Shared::weights_resident());
    if constexpr (copies_x(C)) {
      // A warp for x, and one for the weights of each channel block.
      static_assert(C.team_blocks <= 3 && C.loaders == 1);
      const int warp = Roles::Loaders::index() / warp_size;
      if (lane_index() == 0 && warp == 0) {
        if constexpr (C.mapped)
          Fill::copy_mapped_x(static_cast<const MappedParams&>(p), shared);
        else
          Fill::copy_x(p, shared);
      }
      if (lane_index() == 0 && !resident && warp > 0 && warp <= C.team_blocks)
        CopiedWeights<C, Tables>::copy(p, shared, warp - 1);
    } else {
      Fill::load_x(p, shared);
    }
  }

  /// The tile of a member of the team.
  __device__ static Tile tile_of(const Schedule& schedule, const ForwardParams& p) {
    Tile tile = schedule.tile(p);
    tile.channel_block += Roles::block();
    return tile;
  }

  __device__ static void multiply_and_store(const ForwardParams& p, const Shared& shared) {
    constexpr int warps = warpgroup_size / warp_size;
    unsigned char* const memory =
        shared.store + (Roles::member() * warps + Roles::thread() / warp_size) * panel_store_bytes(C);
    Weights weights(p, shared);
    Ring<C.panel_stages> panel;
    PanelTurns<C> turns;
    SumsOfCluster<C> added;
    const typename PanelOperands<C, Tables>::First first(shared);
    // Before anything but parameters and packed weights is read, and before outputs are written (pack.cuh).
    ptx::wait_for_previous();
    for (Schedule schedule(p, Roles::team()); !schedule.done(); schedule.advance()) {
      const Tile tile = tile_of(schedule, p);
      typename Store::Outputs outputs(p, tile);
      if constexpr (C.fills) {
        static_assert(!C.in_turns);
        if (Tables::steps(tile.type) == 0) {
          Store::fill(p, tile, outputs, Roles::part() * C.position_tiles);
          continue;
        }
      }
      PanelSums<C> sum;
      if (C.in_turns && Tables::steps(tile.type) > 0)  // a turn is for who has what it takes
        ptx::barrier_wait(shared.panel_full(panel.slot), panel.parity);
      turns.wait();
      if constexpr (splits(C.math)) {
        PanelSplitProducts<C, Tables, Wgmma>::multiply(sum, p, tile, shared, first, weights, panel);
        turns.pass();
      } else {
        PanelProducts<C, Tables, Wgmma>::multiply(sum, outputs.of_half, PanelWalk<C, Tables>(p, tile), tile, shared,
                                                  first, weights, panel, turns);
      }
      if constexpr (C.clustered) {
        added.add(tile, sum, memory);
      } else if constexpr (C.depth_splits > 1) {
        unsigned char* const first = shared.store + Roles::member() * warps * panel_store_bytes(C);
        if (!PartialSums<C, Tables>::add(p, tile, sum, reinterpret_cast<u32*>(first))) continue;
      }
      Store::store(p, tile, memory, outputs, sum, Roles::part() * C.position_tiles);
    }
  }
};

}  // namespace tconv::device
