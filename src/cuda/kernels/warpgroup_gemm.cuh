// The warpgroup kernel (sm_90a): the product on wgmma, with x as it lies in memory.
//
//   rows     positions, 64 for each product of a warpgroup
//   columns  (phase, output channel) rows of the plan, N of them
//   depth    for each chunk of channels, for each step (a tap's shift): octets of channel words
//
// x is the operand in registers. Its tile is the one of the general kernel, copied as it is: a lane reads its
// words where the tap's shift puts them, rounds or splits them on the way, and no transposed copy is ever
// made. Weights are the operand in shared memory, packed once in the order the tensor core reads.
//
// A block has one warpgroup that loads and one to three teams. A team is a warpgroup that multiplies and
// stores, and its share of the loading threads; it works on tiles of its own. While one team, or the team of
// another block of the multiprocessor, stores, the tensor cores work for the others.
//
// Weights stay in shared memory where those of one row block fit, and the block keeps to that row block;
// elsewhere each tile streams them through a ring.
//
// C is the configuration (gemm_config.cuh), Tables the generated tables, Wgmma the instruction (codegen.cpp).
#pragma once

#include "epilogue/run_store.cuh"
#include "mma/split.cuh"
#include "ptx/launch.cuh"
#include "ptx/wgmma.cuh"
#include "sizes/block.cuh"
#include "team.cuh"
#include "tiles/x_tile.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables, class Wgmma>
struct WarpgroupGemm {
  static constexpr int threads = warpgroup_size * (1 + C.teams);
  static constexpr int chunks = chunks_of(C), octets = substeps_of(C);
  static constexpr bool resident = C.resident_steps > 0, split = C.math == Math::fp32;
  static constexpr int position_tiles = C.position_tiles, registers = C.rows / 2;
  static constexpr int step_bytes = weight_parts(C) * row_step_bytes(C);
  // Operands are read for about four octets at a time: fewer would wait for shared memory more than they multiply.
  static constexpr int batch_steps = split ? 1 : batch_steps_of(C);
  static constexpr int batch_octets = batch_steps * octets;
  static_assert(position_tiles == 1 || position_tiles % 2 == 0, "operand buffers take turns");

  /// The warpgroup of a team that multiplies and stores.
  struct Multipliers {
    __device__ static int team() { return threadIdx.x / warpgroup_size - 1; }
    __device__ static int thread() { return threadIdx.x % warpgroup_size; }
    __device__ static void sync() { ptx::named_sync(1 + team(), warpgroup_size); }
  };
  /// The threads that load x for a team.
  struct Loaders {
    static constexpr int count = x_loaders_of(C);
    __device__ static int team() { return threadIdx.x / count; }
    __device__ static int index() { return threadIdx.x % count; }
    static_assert(count * C.teams <= warpgroup_size);
  };
  using X = XTile<C, Loaders>;
  using Store = RunStore<C, Multipliers>;

  using Schedule = TeamSchedule<C, Tables>;

  struct Shared {
    u32 resident_weights;
    u32* x;
    u32 weights;
    typename Store::Memory store;
    u32 barriers;
    __device__ explicit Shared(int team) {
      extern __shared__ __align__(128) unsigned char memory[];
      constexpr int x_bytes = C.x_stages * x_slot_words * 4;
      resident_weights = ptx::shared_address(memory);
      unsigned char* const own = memory + resident_bytes(C) + team * team_bytes(C);
      x = reinterpret_cast<u32*>(own);
      weights = ptx::shared_address(own) + x_bytes;
      store.staging = own + x_bytes + weight_ring_bytes(C);
      store.table = reinterpret_cast<typename Store::Line*>(store.staging + C.stage_buffers * stage_bytes(C));
      barriers =
          ptx::shared_address(memory) + resident_bytes(C) + C.teams * team_bytes(C) + (1 + team * team_barriers(C)) * 8;
    }
    static constexpr int x_slot_words = round_up(x_tile_words(C), 32);
    __device__ u32 x_full(int slot) const { return barriers + slot * 8; }
    __device__ u32 x_empty(int slot) const { return x_full(C.x_stages + slot); }
    __device__ u32 weights_full(int slot) const { return x_full(2 * C.x_stages + slot); }
    __device__ u32 weights_empty(int slot) const { return x_full(2 * C.x_stages + C.stages + slot); }
    __device__ static u32 weights_resident() { return Shared(0).barriers - 8; }
  };

  __device__ static void run(const ForwardParams& p) {
    constexpr int warps = warpgroup_size / warp_size;
    ptx::let_next_begin();
    if (threadIdx.x == 0) {
      for (int team = 0; team < C.teams; ++team) {
        const Shared shared(team);
        for (int i = 0; i < C.x_stages; ++i) {
          ptx::barrier_init(shared.x_full(i), Loaders::count);
          ptx::barrier_init(shared.x_empty(i), warps);
        }
        for (int i = 0; i < C.stages; ++i) {
          ptx::barrier_init(shared.weights_full(i), 1);
          ptx::barrier_init(shared.weights_empty(i), warps);
        }
      }
      ptx::barrier_init(Shared::weights_resident(), 1);
      ptx::barrier_init_fence();
    }
    __syncthreads();
    ptx::wait_for_previous();
    if (threadIdx.x < warpgroup_size) {
      ptx::registers_decrease<loading_registers(C)>();
      if (resident && threadIdx.x == 0)
        load_resident_weights<C, Tables>(p, Shared(0).resident_weights, Shared::weights_resident());
      if (Loaders::team() < C.teams)
        load_x(p, Shared(Loaders::team()));
      else if (!resident && threadIdx.x == warpgroup_size / 2)
        load_weights(p, Shared(0));
    } else {
      ptx::registers_increase<multiplying_registers(C)>();
      multiply_and_store(p, Shared(Multipliers::team()));
    }
  }

  // ---- The loading warpgroup -----------------------------------------------------------------------

  /// Copies chunk after chunk. Where there are many taps, the thread that copied a TF32 word rounds it before it is
  /// handed over: while the next copy is under way, or at once where there is no free slot to copy to.
  __device__ static void load_x(const ForwardParams& p, const Shared& shared) {
    constexpr bool rounds = C.round_on_load;
    typename X::Loader loader;
    Ring<C.x_stages> ring, complete;
    bool pending = false;  // a copy that is not handed over yet
    const auto hand_over = [&] {
      if constexpr (rounds) X::Loader::round(shared.x + complete.slot * Shared::x_slot_words);
      ptx::barrier_arrive(shared.x_full(complete.slot));
      complete.advance();
    };
    for (Schedule schedule(p, Loaders::team()); !schedule.done(); schedule.advance()) {
      const Tile tile = schedule.tile(p);
      if (Tables::steps(tile.type) == 0) continue;
      loader.seek(p, tile);
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; ++chunk, ring.advance()) {
        if (rounds && pending && !ptx::barrier_test(shared.x_empty(ring.slot), ring.parity ^ 1)) {
          ptx::wait_copies<0>();
          hand_over();
          pending = false;
        }
        ptx::barrier_wait(shared.x_empty(ring.slot), ring.parity ^ 1);
        loader.load(shared.x + ring.slot * Shared::x_slot_words, chunk);
        if constexpr (X::through_registers) {
          ptx::barrier_arrive(shared.x_full(ring.slot));
        } else if constexpr (rounds) {
          ptx::commit_copies();
          if (pending) {
            ptx::wait_copies<1>();
            hand_over();
          }
          pending = true;
        } else {
          ptx::barrier_arrive_copies(shared.x_full(ring.slot));
        }
      }
    }
    if (pending) {
      ptx::wait_copies<0>();
      hand_over();
    }
  }

  __device__ static void load_weights(const ForwardParams& p, const Shared& shared) {
    Ring<C.stages> ring;
    for (Schedule schedule(p, 0); !schedule.done(); schedule.advance()) {
      const Tile tile = schedule.tile(p);
      const unsigned char* const packed = schedule.weights(p, tile);
      const int steps = Tables::steps(tile.type);
      for (int chunk = 0; chunk < chunks; ++chunk)
        for (int step = 0; step < steps; step += C.steps_per_slab, ring.advance()) {
          ptx::barrier_wait(shared.weights_empty(ring.slot), ring.parity ^ 1);
          load_slab<C>(shared.weights + ring.slot * row_slab_bytes(C), packed, chunk, step,
                       min(C.steps_per_slab, steps - step), steps, shared.weights_full(ring.slot));
        }
    }
  }

  // ---- Products and stores -------------------------------------------------------------------------

  __device__ static void multiply_and_store(const ForwardParams& p, const Shared& shared) {
    if constexpr (resident) ptx::barrier_wait(Shared::weights_resident(), 0);
    Products products(shared);
    u32 tiles = 0, passes = 0;
    for (Schedule schedule(p, Multipliers::team()); !schedule.done(); schedule.advance(), ++tiles) {
      const Tile tile = schedule.tile(p);
      auto* const lines = shared.store.lines_of(tiles);
      Store::template describe<Tables>(p, tile, lines);
      float sum[position_tiles][registers];
      products.multiply(sum, tile.type);
      Store::store(p, tile, shared.store, lines, sum, passes);
    }
  }

  struct Products {
    const Shared& shared;
    Ring<C.x_stages> x;
    Ring<C.stages> weights;
    // Where this lane finds its words of each tile of positions, the first eight and the last eight.
    static constexpr bool halves_follow = C.box.w % 16 == 0;
    int column[position_tiles][halves_follow ? 1 : 2];

    /// One operand: four words of each octet of a few steps, and in fp32 their remainders.
    struct Operand {
      u32 head[batch_octets][4];
      u32 rest[split ? batch_octets : 1][4];
    };
    Operand a[2];

    __device__ explicit Products(const Shared& s) : shared(s) {
      const int first = Multipliers::thread() / warp_size * 16 + lane_index() / 4;
      // Lanes without positions read what others do, the last eight as well.
      constexpr int last = box_positions(C) - (halves_follow ? 9 : 1);
#pragma unroll
      for (int m = 0; m < position_tiles; ++m)
#pragma unroll
        for (int half = 0; half < (halves_follow ? 1 : 2); ++half)
          column[m][half] = lane_index() % 4 * X::word_stride + X::column_offset(min(m * 64 + first + half * 8, last));
    }

    /// Reads the operand of one step, the `place`th of its batch.
    __device__ void load(Operand& operand, const u32* tile, int m, int place) const {
      const u32* const low = tile + column[m][0];
      const u32* const high = halves_follow ? low + 8 * X::position_stride : tile + column[m][halves_follow ? 0 : 1];
#pragma unroll
      for (int o = 0; o < octets; ++o) {
        const u32 word[4] = {low[o * 8 * X::word_stride], high[o * 8 * X::word_stride],
                             low[(o * 8 + 4) * X::word_stride], high[(o * 8 + 4) * X::word_stride]};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if constexpr (split)
            split_tf32(word[i], operand.head[o][i], operand.rest[o][i]);
          else
            operand.head[place * octets + o][i] =
                C.math == Math::tf32 && !C.round_on_load ? ptx::round_tf32(word[i]) : word[i];
        }
      }
    }

    /// The weights of an octet and a step of a batch; those of the next step are `next_step` bytes further.
    __device__ static constexpr int place(int octet, int step) { return slab_place(C, octet, step) * step_bytes; }
    static constexpr int next_step = slab_octets(C) * step_bytes;

    /// Issues the products of `Steps` steps, whose weights begin at `slab`. All other descriptors are constants away
    /// from its own: a product waits for each value that has to be made uniform first.
    template <int Steps>
    __device__ static void issue(float (&sum)[registers], const Operand& operand, u64 slab, bool add) {
      const auto weights_at = [&](int bytes) { return slab + u64(bytes / 16); };
      ptx::wgmma_fence();
      if constexpr (split) {
        // The small products first: they are lost in nothing yet.
#pragma unroll
        for (int o = 0; o < octets; ++o) Wgmma::multiply(sum, operand.rest[o], weights_at(place(o, 0)), add || o > 0);
#pragma unroll
        for (int o = 0; o < octets; ++o)
          Wgmma::multiply(sum, operand.head[o], weights_at(place(o, 0) + row_step_bytes(C)), true);
      }
#pragma unroll
      for (int s = 0; s < Steps; ++s)
#pragma unroll
        for (int o = 0; o < octets; ++o)
          Wgmma::multiply(sum, operand.head[s * octets + o], weights_at(place(o, s)), split || add || s + o > 0);
      ptx::wgmma_commit();
    }

    __device__ void multiply(float (&sum)[position_tiles][registers], int type) {
      const int steps = Tables::steps(type), first_entry = Tables::first_entry(type);
      if (split || steps == 0) {
#pragma unroll
        for (int m = 0; m < position_tiles; ++m)
#pragma unroll
          for (int i = 0; i < registers; ++i) sum[m][i] = 0;
      }
      bool add = false;
#pragma unroll 1
      for (int chunk = 0; chunk < chunks && steps > 0; ++chunk, x.advance()) {
        ptx::barrier_wait(shared.x_full(x.slot), x.parity);
        const u32* const tile = shared.x + x.slot * Shared::x_slot_words;
        if constexpr (resident) {
          const u32 slab = shared.resident_weights + resident_place(C, chunk) * step_bytes;
          multiply_steps(sum, tile, slab, first_entry, steps, add);
          add = true;
        } else {
#pragma unroll 1
          for (int step = 0; step < steps; step += C.steps_per_slab, weights.advance()) {
            ptx::barrier_wait(shared.weights_full(weights.slot), weights.parity);
            multiply_steps(sum, tile, shared.weights + weights.slot * row_slab_bytes(C), first_entry + step,
                           min(C.steps_per_slab, steps - step), add);
            add = true;
            // Products must not be under way from one slab to the next: the assembler would run them one by one.
            ptx::wgmma_wait<0>();
            release(shared.weights_empty(weights.slot));
          }
        }
        ptx::wgmma_wait<0>();
        __syncwarp();  // all lanes have read their words
        release(shared.x_empty(x.slot));
      }
    }

    /// A few steps of one chunk. Operands are read while the products before them are formed; the last products
    /// are still under way at the end.
    __device__ void multiply_steps(float (&sum)[position_tiles][registers], const u32* tile, u32 slab, int entry,
                                   int count, bool add) {
      if constexpr (split) {
        multiply_split(sum, tile, slab, entry, count);
        return;
      }
      int s = 0;
#pragma unroll 1
      for (; s + batch_steps <= count; s += batch_steps, slab += batch_steps * next_step, add = true)
        batch<batch_steps>(sum, tile, slab, entry + s, add);
      if constexpr (batch_steps > 1) {
#pragma unroll 1
        for (; s < count; ++s, slab += next_step, add = true) batch<1>(sum, tile, slab, entry + s, add);
      }
    }

    template <int Steps>
    __device__ void batch(float (&sum)[position_tiles][registers], const u32* tile, u32 slab, int entry, bool add) {
      const u64 weights_at = ptx::wgmma_operand(slab);
      const u32* at[Steps];
#pragma unroll
      for (int s = 0; s < Steps; ++s) at[s] = tile + Tables::low_offset(entry + s);
      if constexpr (position_tiles == 1) ptx::wgmma_wait<0>();  // there is one buffer
#pragma unroll
      for (int m = 0; m < position_tiles; ++m) {
#pragma unroll
        for (int s = 0; s < Steps; ++s) load(a[m % 2], at[s], m, s);
        issue<Steps>(sum[m], a[m % 2], weights_at, add);
        if constexpr (position_tiles > 1) ptx::wgmma_wait<1>();
      }
    }

    /// fp32: a few products are summed by the tensor core, which truncates, and added to the others by the fp32
    /// adder, which rounds to nearest. Few, since truncation has a direction; not one at a time, since every
    /// addition rounds.
    __device__ void multiply_split(float (&sum)[position_tiles][registers], const u32* tile, u32 slab, int entry,
                                   int count) {
      constexpr int steps_together = short_sums(C) ? 1 : max_of(1, 2 / octets);
#pragma unroll 1
      for (int first = 0; first < count; first += steps_together) {
        float part[position_tiles][registers];
#pragma unroll
        for (int i = 0; i < steps_together; ++i) {
          if (steps_together > 1 && first + i >= count) break;
          const u32* const at = tile + Tables::low_offset(entry + first + i);
          const u64 weights_at = ptx::wgmma_operand(slab + (first + i) * next_step);
          if constexpr (position_tiles == 1) ptx::wgmma_wait<0>();  // there is one buffer
#pragma unroll
          for (int m = 0; m < position_tiles; ++m) {
            load(a[m % 2], at, m, 0);
            issue<1>(part[m], a[m % 2], weights_at, i > 0);
            if constexpr (position_tiles > 1) ptx::wgmma_wait<1>();
          }
        }
        ptx::wgmma_wait<0>();
#pragma unroll
        for (int m = 0; m < position_tiles; ++m)
#pragma unroll
          for (int i = 0; i < registers; ++i) sum[m][i] += part[m][i];
      }
    }
  };
};

}  // namespace tconv::device
