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
// one block, they multiply in turns. Or a team has
// several that multiply and read the same panels: each a channel block of its own, so that x is fetched and turned once
// for them; or parts of one box, so that weights are fetched once.
//
// Or x was turned into panels before, by a kernel of its own (turn_x.cuh), and one thread copies them: where many
// channel blocks read the same x, it is turned once for all.
//
// Where there are few tiles and many channels, tiles share the depth of a sum: each leaves its part in memory, and the
// last one to come adds them all, always in the same order, and stores.
//
// Weights stay in shared memory where those of one row block fit, and the block keeps to that row block; elsewhere
// each team streams them through a ring.
//
// C is the configuration (gemm_config.cuh), Tables the generated tables, Wgmma the instruction (codegen.cpp).
#pragma once

#include "epilogue/panel_channel_store.cuh"
#include "epilogue/panel_store.cuh"
#include "ptx/async_copy.cuh"
#include "ptx/barrier.cuh"
#include "ptx/launch.cuh"
#include "ptx/wgmma.cuh"
#include "sizes/block.cuh"
#include "team.cuh"
#include "tiles/x_panel.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables, class Wgmma>
struct PanelGemm {
  static constexpr int threads = warpgroup_size * warpgroups_of(C);
  static constexpr int chunks = chunks_of(C), octets = substeps_of(C);
  static constexpr bool resident = C.resident_steps > 0, split = splits(C.math);
  static constexpr bool scaled = scales(C.math);
  static constexpr int position_tiles = C.position_tiles, registers = C.panel_columns / 2;
  static constexpr int step_bytes = weight_parts(C) * row_step_bytes(C);
  static constexpr int group_steps = C.steps_per_slab;  // steps whose products are issued together
  static_assert(C.rows <= panel_rows);

  static constexpr int loaders = panel_loaders(C), team_threads = loaders + members_of(C) * warpgroup_size;
  __device__ static int team() { return threadIdx.x / team_threads; }
  /// Of a thread that multiplies: which warpgroup of the team it is in, the channel block it works on, and the part of
  /// the box.
  __device__ static int member() { return (Loaders::index() - loaders) / warpgroup_size; }
  __device__ static int block() { return member() / C.box_parts; }
  __device__ static int part() { return member() % C.box_parts; }
  /// The threads of a team that fill panels; the others multiply and store.
  struct Loaders {
    __device__ static int index() { return threadIdx.x % team_threads; }
    __device__ static void sync() { ptx::named_sync(1 + multiplying_warpgroups(C) + team(), loaders); }
  };
  using Panel = XPanel<C, Loaders>;
  /// A warpgroup that multiplies.
  struct Member {
    __device__ static void sync() { ptx::named_sync(1 + team() * members_of(C) + member(), warpgroup_size); }
  };
  using Store = typename Select<C.channel_rows, PanelChannelStore<C, Tables, Member>, PanelStore<C, Tables>>::Type;
  using Schedule = TeamSchedule<C, Tables>;

  struct Shared {
    u32 resident_weights;
    unsigned char* panels;
    u32 weights;
    unsigned char* store;
    u32 barriers;
    __device__ explicit Shared(int team) {
      extern __shared__ __align__(128) unsigned char memory[];
      constexpr int panels_bytes = C.panel_stages * panel_bytes(C);
      resident_weights = ptx::shared_address(memory);
      panels = memory + C.team_blocks * resident_bytes(C) + team * panel_team_bytes(C);
      weights = ptx::shared_address(panels) + panels_bytes;
      store = panels + panels_bytes + C.team_blocks * weight_ring_bytes(C);
      barriers = resident_weights + C.team_blocks * resident_bytes(C) + C.teams * panel_team_bytes(C) +
                 (1 + team * panel_team_barriers(C)) * 8;
    }
    __device__ u32 panel_full(int slot) const { return barriers + slot * 8; }
    __device__ u32 panel_empty(int slot) const { return panel_full(C.panel_stages + slot); }
    __device__ u32 weights_full(int block, int slot) const {
      return panel_full(2 * (C.panel_stages + block * C.stages) + slot);
    }
    __device__ u32 weights_empty(int block, int slot) const { return weights_full(block, C.stages + slot); }
    /// The ring of weights of a channel block.
    __device__ u32 weights_of(int block) const { return weights + block * weight_ring_bytes(C); }
    __device__ static u32 weights_resident() { return Shared(0).barriers - 8; }
    /// Of a warpgroup that multiplies, where they take turns.
    __device__ static u32 turn(int index) { return Shared(C.teams).barriers + index * 8; }
  };

  __device__ static void run(const ForwardParams& p) {
    constexpr int warps = warpgroup_size / warp_size;
    ptx::let_next_begin();
    if (threadIdx.x == 0) {
      for (int team = 0; team < C.teams; ++team) {
        const Shared shared(team);
        for (int i = 0; i < C.panel_stages; ++i) {
          ptx::barrier_init(shared.panel_full(i), C.turned ? 1 : loaders / warp_size);
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
      ptx::barrier_init_fence();
    }
    __syncthreads();
    const Shared shared(team());
    if (Loaders::index() < loaders) {
      ptx::registers_decrease<loading_registers(C)>();
      if (resident && threadIdx.x == 0) {
        wait_for_previous();
        load_resident_weights<C, Tables>(p, shared.resident_weights, Shared::weights_resident());
      }
      if constexpr (C.turned) {
        // A warp for x, and one for the weights of each channel block.
        static_assert(C.team_blocks <= 3 && C.loaders == 1);
        const int warp = Loaders::index() / warp_size;
        if (lane_index() == 0 && warp == 0) copy_x(p, shared);
        if (lane_index() == 0 && !resident && warp > 0 && warp <= C.team_blocks) copy_weights(p, shared, warp - 1);
      } else {
        load_x(p, shared);
      }
    } else {
      if constexpr (multiplying_registers(C) > entry_registers(C)) ptx::registers_increase<multiplying_registers(C)>();
      multiply_and_store(p, shared);
    }
  }

  /// Before anything but the parameters is read, and before outputs are written; everybody finds the first tile before
  /// it. What was there before x was turned needs no waiting for: that kernel has waited (turn_x.cuh).
  __device__ static void wait_for_previous() {
    if constexpr (!C.turned) ptx::wait_for_previous();
  }

  // ---- The loading warpgroups -----------------------------------------------------------------------

  /// Chunks of x, one after the other and tile after tile.
  struct Chunks {
    const ForwardParams& p;
    Schedule schedule;
    typename Panel::Loader loader;
    int chunk = 0;

    __device__ explicit Chunks(const ForwardParams& params) : p(params), schedule(params, team()) { seek(); }
    __device__ void seek() {
      Tile tile;
      if (schedule.seek_products(p, tile)) loader.seek(p, tile);
    }
    /// Begins to load the next chunk, if there is one.
    __device__ bool load(typename Panel::Buffer& buffer) {
      if (schedule.done()) return false;
      loader.load(buffer, chunk);
      buffer.begins_tile = chunk == 0;
      if (++chunk == chunks) {
        chunk = 0;
        schedule.advance();
        seek();
      }
      return true;
    }
  };

  /// Fills panels from one buffer while the other is being loaded, where there are two.
  __device__ static void load_x(const ForwardParams& p, const Shared& shared) {
    Chunks source(p);
    wait_for_previous();
    source.loader.load_from_here();
    Ring<C.panel_stages> panel;
    u32 scale = 0;
    const auto fill = [&](const typename Panel::Buffer& buffer) {
      unsigned char* const to = shared.panels + panel.slot * panel_bytes(C);
      u32 largest = 0;
      if constexpr (scaled) largest = Panel::largest_of(buffer);
      ptx::barrier_wait(shared.panel_empty(panel.slot), panel.parity ^ 1);
      if constexpr (scaled) {
        if (lane_index() == 0)
          reinterpret_cast<u32*>(to + panel_largest_place(C))[Loaders::index() / warp_size] = largest;
        Loaders::sync();
        largest = largest_of(to);
        if constexpr (C.math == Math::halves)
          scale = scale_for(largest);
        else if (buffer.begins_tile || !has_room(scale, largest))
          scale = coarse_scale_for(largest);  // the chunks of a tile keep theirs as long as it serves
        if (Loaders::index() == 0) *reinterpret_cast<u32*>(to + panel_scale_place(C)) = scale;
      }
      Panel::fill(to, buffer, power_of_two(scale));
      ptx::async_proxy_fence();
      __syncwarp();
      release(shared.panel_full(panel.slot));
      panel.advance();
    };
    typename Panel::Buffer a;
    if constexpr (C.fill_buffers == 1) {
      while (source.load(a)) fill(a);
    } else {
      typename Panel::Buffer b;
      bool more = source.load(a);
      while (more) {
        more = source.load(b);
        fill(a);
        if (!more) break;
        more = source.load(a);
        fill(b);
      }
    }
  }

  /// The bits of the largest number of a panel.
  __device__ static u32 largest_of(const unsigned char* panel) {
    u32 largest = 0;
#pragma unroll
    for (int i = 0; i < C.loaders; ++i) {
      const uint4 of_warp = reinterpret_cast<const uint4*>(panel + panel_largest_place(C))[i];
      largest = max(largest, max(max(of_warp.x, of_warp.y), max(of_warp.z, of_warp.w)));
    }
    return largest;
  }

  /// Copies panels that were turned before.
  __device__ static void copy_x(const ForwardParams& p, const Shared& shared) {
    ptx::wait_for_previous();
    Ring<C.panel_stages> panel;
    Tile tile;
    for (Schedule schedule(p, team()); schedule.seek_products(p, tile); schedule.advance()) {
      const int first = first_chunk(C, tile.split), end = first_chunk(C, tile.split + 1);
      const unsigned char* turned = static_cast<const unsigned char*>(p.x) +
                                    ((i64(tile.box) * C.groups + tile.group) * chunks + first) * panel_bytes(C);
#pragma unroll 1
      for (int chunk = first; chunk < end; ++chunk, turned += panel_bytes(C), panel.advance()) {
        const u32 full = shared.panel_full(panel.slot);
        ptx::barrier_wait(shared.panel_empty(panel.slot), panel.parity ^ 1);
        ptx::barrier_arrive_expect(full, panel_bytes(C));
        ptx::bulk_load(ptx::shared_address(shared.panels) + panel.slot * panel_bytes(C), turned, panel_bytes(C), full);
      }
    }
  }

  /// Copies the weights of a channel block.
  __device__ static void copy_weights(const ForwardParams& p, const Shared& shared, int block) {
    Ring<C.stages> ring;
    Tile tile;
    for (Schedule schedule(p, team()); schedule.seek_products(p, tile); schedule.advance()) {
      tile.channel_block += block;
      const unsigned char* const packed = schedule.weights(p, tile);
      const int steps = Tables::steps(tile.type);
      const int first = first_chunk(C, tile.split), end = first_chunk(C, tile.split + 1);
#pragma unroll 1
      for (int chunk = first; chunk < end; ++chunk)
#pragma unroll 1
        for (int step = 0; step < steps; step += group_steps, ring.advance()) {
          ptx::barrier_wait(shared.weights_empty(block, ring.slot), ring.parity ^ 1);
          load_slab<C>(shared.weights_of(block) + ring.slot * row_slab_bytes(C), packed, chunk, step, group_steps,
                       steps, shared.weights_full(block, ring.slot));
        }
    }
  }

  // ---- Products and stores -------------------------------------------------------------------------

  __device__ static int thread() { return threadIdx.x % warpgroup_size; }

  /// The tile of a member of the team.
  __device__ static Tile tile_of(const Schedule& schedule, const ForwardParams& p) {
    Tile tile = schedule.tile(p);
    tile.channel_block += block();
    return tile;
  }

  /// The slabs of weights of a channel block, in the order its products take them. All threads keep count, one copies;
  /// where parts of the box share them, one of the first part. It fills a slot one slab later then, so that it need not
  /// wait for the other part.
  struct WeightStream {
    const ForwardParams& p;
    const Shared& shared;
    Schedule schedule;
    const unsigned char* packed = nullptr;  // of the tile
    int steps = 0, chunk = 0, step = 0;     // of the next slab
    Ring<C.stages> next;                    // the slab whose products are next
    Ring<C.stages> before;                  // the one used last, where that is still to be filled again
    bool waits = false;

    __device__ WeightStream(const ForwardParams& params, const Shared& s)
        : p(params), shared(s), schedule(params, team()) {
      seek();
      wait_for_previous();
#pragma unroll 1
      for (int slot = 0; slot < C.stages; ++slot)
        if (part() == 0) copy(slot);
    }
    __device__ void seek() {
      Tile tile;
      if (!schedule.seek_products(p, tile)) return;
      tile.channel_block += block();
      steps = Tables::steps(tile.type), packed = schedule.weights(p, tile);
    }
    __device__ void copy(int slot) {
      if (schedule.done()) return;
      if (thread() == 0)
        load_slab<C>(shared.weights_of(block()) + slot * row_slab_bytes(C), packed, chunk, step, group_steps, steps,
                     shared.weights_full(block(), slot));
      step += group_steps;
      if (step == steps) {
        step = 0;
        if (++chunk == chunks) {
          chunk = 0;
          schedule.advance();
          seek();
        }
      }
    }
    /// Fills a slot again whose products are complete, as far as this warp knows.
    __device__ void refill(const Ring<C.stages>& used) {
      release(shared.weights_empty(block(), used.slot));
      if constexpr (C.box_parts == 1) {
        fill(used);
      } else if (part() == 0) {
        if (waits) fill(before);
        before = used, waits = true;
      }
    }
    __device__ void fill(const Ring<C.stages>& used) {
      if (thread() == 0) ptx::barrier_wait(shared.weights_empty(block(), used.slot), used.parity);
      copy(used.slot);
    }
  };
  /// Of weights that are there to stay.
  struct ResidentWeights {
    Ring<1> next;
    __device__ ResidentWeights(const ForwardParams&, const Shared&) {
      wait_for_previous();
      ptx::barrier_wait(Shared::weights_resident(), 0);
    }
    __device__ void refill(const Ring<1>&) {}
  };
  /// Of weights that loading threads see to.
  struct CopiedWeights {
    const Shared& shared;
    Ring<C.stages> next;
    __device__ CopiedWeights(const ForwardParams&, const Shared& s) : shared(s) {}
    __device__ void refill(const Ring<C.stages>& used) { release(shared.weights_empty(block(), used.slot)); }
  };
  using Weights =
      typename Select<resident, ResidentWeights, typename Select<C.turned, CopiedWeights, WeightStream>::Type>::Type;

  /// Warpgroups that multiply one at a time. Side by side they would all multiply at half the speed, then all store,
  /// and the tensor cores would wait. They have equally many tiles, or the first ones have one more.
  struct Turns {
    int index = team() * members_of(C) + member();
    u32 parity = index == 0 ? 1 : 0;  // nobody is before the first one at first

    __device__ void wait() {
      if constexpr (C.in_turns) ptx::barrier_wait(Shared::turn(index), parity), parity ^= 1;
    }
    /// All products of the tile are issued.
    __device__ void pass() const {
      if constexpr (C.in_turns) release(Shared::turn(index + 1 == multiplying_warpgroups(C) ? 0 : index + 1));
    }
  };

  __device__ static void multiply_and_store(const ForwardParams& p, const Shared& shared) {
    constexpr int warps = warpgroup_size / warp_size;
    unsigned char* const memory = shared.store + (member() * warps + thread() / warp_size) * panel_store_bytes(C);
    Weights weights(p, shared);
    Ring<C.panel_stages> panel;
    Turns turns;
    const FirstOperands first(shared);
    for (Schedule schedule(p, team()); !schedule.done(); schedule.advance()) {
      const Tile tile = tile_of(schedule, p);
      typename Store::Outputs outputs(p, tile);
      if constexpr (C.fills) {
        static_assert(!C.in_turns);
        if (Tables::steps(tile.type) == 0) {
          Store::fill(p, tile, outputs, part() * position_tiles);
          continue;
        }
      }
      float sum[position_tiles][registers];
      if (C.in_turns && Tables::steps(tile.type) > 0)  // a turn is for who has what it takes
        ptx::barrier_wait(shared.panel_full(panel.slot), panel.parity);
      turns.wait();
      if constexpr (split) {
        multiply_split(sum, p, tile, shared, first, weights, panel);
        turns.pass();
      } else {
        multiply(sum, outputs, tile, shared, first, weights, panel, turns);
      }
      if constexpr (C.depth_splits > 1) {
        unsigned char* const first = shared.store + member() * warps * panel_store_bytes(C);
        if (!add_parts(p, tile, sum, reinterpret_cast<u32*>(first))) continue;
      }
      Store::store(p, tile, memory, outputs, sum, part() * position_tiles);
    }
  }

  /// Leaves the sums of a tile for the last one of those that share them; that one gets them all, added. `memory` is
  /// the warpgroup's own.
  __device__ static bool add_parts(const ForwardParams& p, const Tile& tile, float (&sum)[position_tiles][registers],
                                   u32* memory) {
    static_assert(C.turned && !resident && !C.in_turns, "turned x has memory for them");
    static_assert(C.depth_splits <= chunks && all_types_have_steps(), "who has no panel has not waited for zeros");
    constexpr int words = member_sums(C);
    const int place = tile.sum * members_of(C) + member();
    float* const parts = p.partials + i64(place) * C.depth_splits * words + thread();
#pragma unroll
    for (int t = 0; t < position_tiles; ++t)
#pragma unroll
      for (int i = 0; i < registers; ++i) parts[tile.split * words + (t * registers + i) * warpgroup_size] = sum[t][i];
    __threadfence();
    Member::sync();
    if (thread() == 0) *memory = atomicAdd(p.arrivals + place, 1u);
    Member::sync();
    const bool last = *memory + 1 == C.depth_splits;
    Member::sync();
    if (!last) return false;
    __threadfence();
    clear(sum);
#pragma unroll 1
    for (int split = 0; split < C.depth_splits; ++split)
#pragma unroll
      for (int t = 0; t < position_tiles; ++t)
#pragma unroll
        for (int i = 0; i < registers; ++i)
          sum[t][i] += ptx::load_fresh(parts + split * words + (t * registers + i) * warpgroup_size);
    return true;
  }

  __device__ static void clear(float (&sum)[position_tiles][registers]) {
#pragma unroll
    for (int t = 0; t < position_tiles; ++t)
#pragma unroll
      for (int i = 0; i < registers; ++i) sum[t][i] = 0;
  }

  /// Where the weights of a group of steps are, from those that are there to stay or from the first slot.
  __device__ static int slab_place_of(const Weights& weights, int chunk, int step) {
    if constexpr (resident)
      return (resident_place(C, chunk) + slab_place(C, 0, step)) * step_bytes;
    else
      return weights.next.slot * row_slab_bytes(C);
  }
  /// The weights of an octet and a step of a group.
  __device__ static constexpr int weights_at(int octet, int step) { return slab_place(C, octet, step) * step_bytes; }

  /// The descriptor of an operand, so many bytes further: a constant away, since a product waits for each value
  /// that has to be made uniform first.
  __device__ static u64 further(u64 operand, int bytes) { return operand + u64(bytes / 16); }
  /// The same, for what is no constant; and made uniform.
  __device__ static u64 uniform_further(u64 operand, int bytes) {
    const u32 low = u32(operand) + u32(bytes) / 16;  // the upper half is a constant, and stays one
    return (operand & 0xffffffff00000000) | __shfl_sync(0xffffffff, low, 0);
  }

  /// Whether a panel is there already; the same for all lanes of a warp.
  __device__ static bool is_full(const Shared& shared, const Ring<C.panel_stages>& panel) {
    const bool full = ptx::barrier_test(shared.panel_full(panel.slot), panel.parity);
    return __shfl_sync(0xffffffff, u32(full), 0) != 0;
  }

  /// Descriptors of what a warpgroup multiplies, in the first slots: everything else is a few additions away from them.
  struct FirstOperands {
    u64 weights, x;
    __device__ explicit FirstOperands(const Shared& shared)
        : weights(ptx::wgmma_operand(resident ? shared.resident_weights + block() * resident_bytes(C)
                                              : shared.weights_of(block()))) {
      static_assert(C.box_parts == 1 || panel_part_stride(C) >= 0);
      const int of_part = C.box_parts == 1 ? 0 : part() * panel_part_stride(C) * 16;
      x = ptx::wgmma_panel(ptx::shared_address(shared.panels) + of_part, panel_slice_bytes(C));
    }
  };

  /// Whether every type has its steps in one group: where they read is known for a whole tile then.
  __device__ static constexpr bool one_group_a_chunk() {
    for (int type = 0; type < C.types; ++type)
      if (Tables::steps(type) != group_steps) return false;
    return true;
  }
  __device__ static constexpr bool all_types_have_steps() {
    for (int type = 0; type < C.types; ++type)
      if (Tables::steps(type) == 0) return false;
    return true;
  }
  /// Calls `group(step)` for each group of a tile's steps.
  template <class Group>
  __device__ static void each_group(int steps, const Group& group) {
    if constexpr (one_group_a_chunk()) {
      group(0);
    } else {
#pragma unroll 1
      for (int step = 0; step < steps; step += group_steps) group(step);
    }
  }
  /// Where the steps of a group read a panel, in bytes from its first position.
  struct Offsets {
    int of_step[group_steps];
    __device__ explicit Offsets(int entry) {
#pragma unroll
      for (int s = 0; s < group_steps; ++s) of_step[s] = Tables::low_offset(entry + s) * 16;
    }
  };

  /// The first operands of a group of steps. Made before they are waited for.
  struct Operands {
    u64 weights, x[group_steps];
    __device__ Operands(const FirstOperands& first, int slab, int slot, const Offsets& offsets)
        : weights(uniform_further(first.weights, slab)) {
      if constexpr (C.types == 1 && one_group_a_chunk()) {  // all offsets are constants
        const u64 panel = uniform_further(first.x, slot * panel_bytes(C));
#pragma unroll
        for (int s = 0; s < group_steps; ++s) x[s] = further(panel, Tables::low_offset(s) * 16);
      } else {
#pragma unroll
        for (int s = 0; s < group_steps; ++s)
          x[s] = uniform_further(first.x, slot * panel_bytes(C) + offsets.of_step[s]);
      }
    }
  };

  /// The scale of a panel; and of turned x, whether all of the panel is finite.
  __device__ static uint2 scale_of(const Shared& shared, const Ring<C.panel_stages>& panel) {
    return *reinterpret_cast<const uint2*>(shared.panels + panel.slot * panel_bytes(C) + panel_scale_place(C));
  }

  /// Of what is scaled, and not split: brings sums to the scale of the panel that is added next. False if it is not to
  /// be added: nothing of it would be left beside the largest sums, which would not remain finite at its scale. (Of x
  /// that is not turned before, scales of a tile never grow.)
  __device__ static bool adopt(const uint2& of_panel, u32& scale, float (&sum)[position_tiles][registers]) {
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
  __device__ static void unscale(u32 scale, float (&sum)[position_tiles][registers], typename Store::Outputs& outputs) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const UnscaleSum whole(scale, outputs.of_half[half].factor);
      const float now = C.depth_splits > 1 ? whole.factor * whole.rest : whole.rest;
      outputs.of_half[half].factor = C.depth_splits > 1 ? 1 : whole.factor;
      if (__all_sync(0xffffffff, now == 1)) continue;
#pragma unroll
      for (int t = 0; t < position_tiles; ++t)
#pragma unroll
        for (int r = 0; r < registers; ++r)
          if (r / 2 % 2 == half) sum[t][r] *= now;
    }
  }

  __device__ static void multiply(float (&sum)[position_tiles][registers], typename Store::Outputs& outputs,
                                  const Tile& tile, const Shared& shared, const FirstOperands& first, Weights& weights,
                                  Ring<C.panel_stages>& panel, const Turns& turns) {
    const int steps = Tables::steps(tile.type);
    const int entry = Tables::first_entry(tile.type);
    const int first_of_tile = first_chunk(C, tile.split), end_of_tile = first_chunk(C, tile.split + 1);
    // Where all products are one group, the first one overwrites the sums: zeros would be written inside the
    // group.
    constexpr bool one_group = chunks == 1 && C.types == 1 && one_group_a_chunk();
    if constexpr (!one_group) clear(sum);
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
    for (int chunk = first_of_tile; chunk < end_of_tile; ++chunk, panel.advance()) {
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
        const uint2 of_panel = scale_of(shared, panel);
        if (chunk == first_of_tile) {
          scale = of_panel.x;
        } else if (__shfl_sync(0xffffffff, of_panel.x, 0) != scale && !adopt(of_panel, scale, sum)) {
          hand_back();
          skip(steps, shared, weights);
          release(shared.panel_empty(panel.slot));
          continue;
        }
      }
      each_group(steps, [&](int step) {
        const Operands operands(first, slab_place_of(weights, chunk, step), panel.slot,
                                one_group_a_chunk() ? of_tile : Offsets(entry + step));
        if constexpr (!resident)
          ptx::barrier_wait(shared.weights_full(block(), weights.next.slot), weights.next.parity);
        ptx::wgmma_fence();
#pragma unroll
        for (int s = 0; s < group_steps; ++s) {
          const u64 w = operands.weights, x = operands.x[s];
#pragma unroll
          for (int o = 0; o < octets; ++o)
#pragma unroll
            for (int t = 0; t < position_tiles; ++t)
              Wgmma::multiply(sum[t], further(w, weights_at(o, s)),
                              further(x, o * 2 * panel_slice_bytes(C) + panel_start(C, t) * 16),
                              !one_group || s + o > 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        // The products before these are complete: what they read may be overwritten.
        if (began) {
          weights.refill(used_weights);
          if (step == 0 && !released) release(shared.panel_empty(used_panel.slot));
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
    if constexpr (scaled) unscale(scale, sum, outputs);
  }

  /// The weights of a chunk that is not multiplied.
  __device__ static void skip(int steps, const Shared& shared, Weights& weights) {
    each_group(steps, [&](int) {
      if constexpr (!resident) ptx::barrier_wait(shared.weights_full(block(), weights.next.slot), weights.next.parity);
      weights.refill(weights.next);
      weights.next.advance();
    });
  }

  /// fp32: a few products are summed by the tensor core, which truncates, and added to the others by the fp32
  /// adder, which rounds to nearest. Few, since truncation has a direction; not one at a time, since every
  /// addition rounds. While the sums of one product are added, the next one is formed.
  __device__ static void multiply_split(float (&sum)[position_tiles][registers], const ForwardParams& p,
                                        const Tile& tile, const Shared& shared, const FirstOperands& first,
                                        Weights& weights, Ring<C.panel_stages>& panel) {
    const int steps = Tables::steps(tile.type);
    const int entry = Tables::first_entry(tile.type);
    clear(sum);
    if (steps == 0) return;
    const Offsets of_tile(entry);
    Unscale of_weights[2];  // of each of the thread's two rows
    if constexpr (scaled) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (const int channel = Store::channel_of_half(tile, half); channel >= 0)
          of_weights[half] = Unscale(p.scales[channel]);
    }
#pragma unroll 1
    for (int chunk = first_chunk(C, tile.split); chunk < first_chunk(C, tile.split + 1); ++chunk, panel.advance()) {
      ptx::barrier_wait(shared.panel_full(panel.slot), panel.parity);
      float scale[2];  // of products, undone
      if constexpr (scaled) {
        const float of_x = power_of_two(undone(scale_of(shared, panel).x));
        scale[0] = of_x * of_weights[0].of_part, scale[1] = of_x * of_weights[1].of_part;
      }
      each_group(steps, [&](int step) {
        const Operands operands(first, slab_place_of(weights, chunk, step), panel.slot,
                                one_group_a_chunk() ? of_tile : Offsets(entry + step));
        if constexpr (!resident)
          ptx::barrier_wait(shared.weights_full(block(), weights.next.slot), weights.next.parity);
        constexpr int buffers = split_buffers(C);
        constexpr int parts = ceil_div(group_steps, part_steps) * position_tiles;
        float part[buffers][registers];
#pragma unroll
        for (int i = 0; i < parts + buffers - 1; ++i) {
          if (i < parts) issue_split(part[i % buffers], operands, i / position_tiles * part_steps, i % position_tiles);
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
      release(shared.panel_empty(panel.slot));
    }
    if constexpr (scaled) {
#pragma unroll
      for (int t = 0; t < position_tiles; ++t)
#pragma unroll
        for (int r = 0; r < registers; ++r) sum[t][r] *= of_weights[r / 2 % 2].of_sum;
    }
  }

  static constexpr int part_steps = split_steps(C);

  /// The three products of heads and remainders, the small ones first: they are lost in nothing yet.
  __device__ static void issue_split(float (&part)[registers], const Operands& operands, int first, int tile) {
    ptx::wgmma_fence();
#pragma unroll
    for (int product = 0; product < 3; ++product)
#pragma unroll
      for (int s = first; s < min_of(first + part_steps, group_steps); ++s)
#pragma unroll
        for (int o = 0; o < octets; ++o)
          Wgmma::multiply(part, further(operands.weights, weights_at(o, s) + (product == 0 ? row_step_bytes(C) : 0)),
                          further(operands.x[s], o * 2 * panel_slice_bytes(C) + panel_start(C, tile) * 16 +
                                                     (product == 1 ? panel_part_bytes(C) : 0)),
                          product + s - first + o > 0);
    ptx::wgmma_commit();
  }
};

}  // namespace tconv::device
