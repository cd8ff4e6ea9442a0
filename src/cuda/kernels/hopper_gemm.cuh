// The Hopper kernel (sm_90a): the same matrix product on wgmma, for TF32 and channels first.
//
//   one warpgroup   copies x tiles of 32 channels as they lie in memory, rounds them and transposes them to
//                   K-major rows, one row of 128 bytes for each position
//   two warpgroups  take turns at tiles of 64 rows by 256 columns: while one multiplies, the other stores
//
// Columns run over the rows of the transposed tile, halo included: a step is the same operand, started a
// few rows earlier, in one and two dimensions alike. Columns on the halo are computed and not stored.
// Weights stream through a ring of bulk copies, or stay in shared memory where they fit.
#pragma once

#include "epilogue/staged_store.cuh"
#include "ptx/barrier.cuh"
#include "ptx/wgmma.cuh"
#include "tiles/x_tile.cuh"

namespace tconv::device {

/// A place in a ring of slots: which one is next, and the parity its barriers are at.
template <int Slots>
struct Ring {
  u32 count = 0;
  __device__ int slot() const { return int(count % Slots); }
  __device__ u32 parity() const { return count / Slots & 1; }
};

template <GemmConfig C, class Tables>
struct HopperGemm {
  static constexpr int producers = 128, consumers = 256;
  static constexpr int threads = producers + consumers;
  static constexpr int chunks = chunks_of(C);
  static constexpr bool resident = C.resident_steps > 0;
  static constexpr int columns = columns_of(C);
  static_assert(C.warps_m == 4 && C.warps_n == 1 && C.tiles_m == 1);

  /// x as it is copied: the tile of the general kernel, loaded by the producers.
  static constexpr GemmConfig raw_config() {
    GemmConfig c = C;
    c.warps_m = 4, c.warps_n = 1, c.chunk_words = hopper_piece;
    return c;
  }
  using Raw = XTile<raw_config()>;

  /// One of the two consuming warpgroups; each stores its tiles on its own.
  struct Warpgroup {
    __device__ static int index() { return threadIdx.x / 128 - 1; }
    __device__ static int thread() { return threadIdx.x % 128; }
    __device__ static int warp_row() { return thread() / warp_size; }
    __device__ static int warp_column() { return 0; }
    __device__ static void sync() {
      if (index() == 0)
        ptx::named_sync<1, 128>();
      else
        ptx::named_sync<3, 128>();
    }
  };
  using Store = StagedStore<C, Warpgroup>;

  struct Shared {
    u32 x, weights;  // addresses
    unsigned char* x_pointer;
    unsigned char* raw;
    unsigned char* epilogue;  // one for each consuming warpgroup
    u32 barriers;
    __device__ Shared() {
      extern __shared__ __align__(16) unsigned char memory[];
      const u32 base = ptx::shared_address(memory), aligned = (base + 1023) & ~1023u;
      x_pointer = memory + (aligned - base);
      x = aligned;
      weights = x + round_up(C.x_stages * hopper_x_bytes(C), 1024);
      raw = x_pointer + (weights - x) + round_up(hopper_weight_bytes(C), 1024);
      epilogue = raw + C.raw_stages * hopper_raw_bytes(C);
      barriers = ptx::shared_address(epilogue) + 2 * round_up(epilogue_bytes(C), 16);
    }
    __device__ u32 x_full(int slot) const { return barriers + slot * 8; }
    __device__ u32 x_empty(int slot) const { return x_full(C.x_stages + slot); }
    __device__ u32 weight_full(int slot) const { return x_full(2 * C.x_stages + slot); }
    __device__ u32 weight_empty(int slot) const { return x_full(2 * C.x_stages + C.stages + slot); }
    __device__ u32 weights_resident() const { return x_full(2 * (C.x_stages + C.stages)); }
    /// Completes when it is this warpgroup's turn to multiply.
    __device__ u32 turn(int group) const { return x_full(2 * (C.x_stages + C.stages) + 1 + group); }
  };

  __device__ static const unsigned char* packed(const ForwardParams& p, const Tile& tile) {
    const i64 steps = i64(Tables::steps(tile.type)) * chunks;
    const i64 block = i64(tile.group) * C.channel_blocks + tile.channel_block;
    return reinterpret_cast<const unsigned char*>(p.weight) +
           (Tables::first_entry(tile.type) * i64(chunks) * C.groups * C.channel_blocks + block * steps) *
               hopper_step_bytes(C);
  }

  __device__ static void run(const ForwardParams& p) {
    const Shared shared;
    if (threadIdx.x == 0) {
      for (int i = 0; i < C.x_stages; ++i) {
        ptx::barrier_init(shared.x_full(i), producers);
        ptx::barrier_init(shared.x_empty(i), 1);
      }
      for (int i = 0; i < C.stages; ++i) {
        ptx::barrier_init(shared.weight_full(i), 1);
        ptx::barrier_init(shared.weight_empty(i), 1);
      }
      ptx::barrier_init(shared.weights_resident(), 1);
      ptx::barrier_init(shared.turn(0), 1);
      ptx::barrier_init(shared.turn(1), 1);
      ptx::barrier_init_fence();
    }
    __syncthreads();
    // A block of 384 threads starts with 168 registers each; what the producers give back, the consumers
    // take. More than there is would wait for ever.
    static_assert(96 + 2 * 200 <= 3 * 168);
    if (threadIdx.x < producers) {
      ptx::registers_decrease<96>();
      produce(p, shared);
    } else {
      ptx::registers_increase<200>();
      consume(p, shared);
    }
  }

  // ---- x -------------------------------------------------------------------------------------------

  static constexpr int pieces = chunks * (hopper_chunk / hopper_piece);  // of a tile

  /// Copies piece after piece of tile after tile, `raw_stages` ahead of the transposition.
  struct RawCopies {
    const ForwardParams& p;
    unsigned char* ring;
    int tile_index = blockIdx.x, piece = 0, slot = 0;
    typename Raw::Loader loader;

    __device__ RawCopies(const ForwardParams& params, unsigned char* raw) : p(params), ring(raw) { seek(); }
    __device__ void seek() {
      for (; tile_index < p.tiles; tile_index += gridDim.x) {
        const Tile tile = Tile::decode<C>(p, tile_index);
        if (Tables::steps(tile.type) > 0) {
          loader.seek(p, tile);
          return;
        }
      }
    }
    __device__ bool done() const { return tile_index >= p.tiles; }
    __device__ void copy_next() {
      if (!done()) {
        loader.load(reinterpret_cast<u32*>(ring + slot * hopper_raw_bytes(C)), piece);
        if (++slot == C.raw_stages) slot = 0;
        if (++piece == pieces) {
          piece = 0;
          tile_index += gridDim.x;
          seek();
        }
      }
      ptx::commit_copies();
    }
  };

  __device__ static void produce(const ForwardParams& p, const Shared& shared) {
    RawCopies copies(p, shared.raw);
    i64 left = 0;  // chunks to transpose
    for (int index = blockIdx.x; index < p.tiles; index += gridDim.x)
      if (Tables::steps(Tile::decode<C>(p, index).type) > 0) left += chunks;
#pragma unroll
    for (int i = 0; i < C.raw_stages; ++i) copies.copy_next();
    Ring<C.x_stages> to;
    int from = 0;
    for (; left > 0; --left) {
      unsigned char* const x = shared.x_pointer + to.slot() * hopper_x_bytes(C);
#pragma unroll
      for (int half = 0; half < hopper_chunk / hopper_piece; ++half) {
        ptx::wait_copies<C.raw_stages - 1>();
        ptx::named_sync<2, producers>();  // the piece is here for every producer
        if (half == 0) ptx::barrier_wait(shared.x_empty(to.slot()), to.parity() ^ 1);
        transpose(x, reinterpret_cast<const u32*>(shared.raw + from * hopper_raw_bytes(C)), half);
        if (++from == C.raw_stages) from = 0;
        if (half == hopper_chunk / hopper_piece - 1) {
          ptx::async_proxy_fence();
          ptx::barrier_arrive(shared.x_full(to.slot()));
          ++to.count;
        }
        ptx::named_sync<2, producers>();  // the piece has been read
        copies.copy_next();
      }
    }
  }

  /// Rounds a piece to TF32 and turns [channel][position] into swizzled rows [position][channel]; each warp
  /// takes four channels.
  __device__ static void transpose(unsigned char* x, const u32* raw, int half) {
    const int warp = threadIdx.x / warp_size, quad = half * 4 + warp;
    const u32* const from = raw + warp * 4 * Raw::word_stride;
#pragma unroll 4
    for (int row = lane_index(); row < Raw::positions; row += warp_size) {
      const uint4 v = make_uint4(ptx::round_tf32(from[row]), ptx::round_tf32(from[row + Raw::word_stride]),
                                 ptx::round_tf32(from[row + 2 * Raw::word_stride]),
                                 ptx::round_tf32(from[row + 3 * Raw::word_stride]));
      *reinterpret_cast<uint4*>(x + row * hopper_row_bytes + ((quad ^ (row & 7)) << 4)) = v;
    }
  }

  // ---- Products and stores -------------------------------------------------------------------------

  /// The stream of weights, step by step and tile by tile. One thread of the warpgroup whose turn it is
  /// issues a copy for each product; the other warpgroup's thread keeps count.
  struct WeightStream {
    const ForwardParams& p;
    const Shared& shared;
    int tile_index = blockIdx.x, step = 0, steps = 0;
    const unsigned char* next = nullptr;
    Ring<C.stages> ring;

    __device__ WeightStream(const ForwardParams& params, const Shared& s) : p(params), shared(s) { seek(); }
    __device__ void seek() {
      for (; tile_index < p.tiles; tile_index += gridDim.x) {
        const Tile tile = Tile::decode<C>(p, tile_index);
        steps = Tables::steps(tile.type) * chunks;
        if (steps > 0) {
          next = packed(p, tile);
          return;
        }
      }
    }
    __device__ void advance(bool copy) {
      if (tile_index >= p.tiles) return;
      if (copy) {
        const u32 full = shared.weight_full(ring.slot());
        ptx::barrier_wait(shared.weight_empty(ring.slot()), ring.parity() ^ 1);
        ptx::barrier_arrive_expect(full, hopper_step_bytes(C));
        ptx::bulk_copy(shared.weights + ring.slot() * hopper_step_bytes(C), next, hopper_step_bytes(C), full);
      }
      next += hopper_step_bytes(C);
      ++ring.count;
      if (++step == steps) {
        step = 0;
        tile_index += gridDim.x;
        seek();
      }
    }
  };

  __device__ static void consume(const ForwardParams& p, const Shared& shared) {
    const int group = Warpgroup::index();
    const bool leader = Warpgroup::thread() == 0;
    const auto memory = Store::memory(shared.epilogue + group * round_up(epilogue_bytes(C), 16));
    Store::clear(memory);
    WeightStream stream(p, shared);
    if constexpr (resident) {
      if (leader && group == 0) {
        ptx::barrier_arrive_expect(shared.weights_resident(), hopper_weight_bytes(C));
        ptx::bulk_copy(shared.weights, p.weight, hopper_weight_bytes(C), shared.weights_resident());
      }
      ptx::barrier_wait(shared.weights_resident(), 0);
    } else if (leader) {
      for (int i = 0; i < C.stages - 1; ++i) stream.advance(group == 0);
    }

    Ring<C.x_stages> x;
    Ring<C.stages> weights;
    u32 own = 0;  // tiles of this warpgroup so far
    int owner = 0;
    for (int index = blockIdx.x; index < p.tiles; index += gridDim.x, owner ^= 1) {
      const Tile tile = Tile::decode<C>(p, index);
      const int steps = Tables::steps(tile.type), products = steps * chunks;
      if (owner != group) {  // the other's tile: what it takes from the rings is not ours
        if (steps > 0) x.count += chunks;
        weights.count += products;
        if (!resident && leader)
          for (int i = 0; i < products; ++i) stream.advance(false);
        continue;
      }
      auto* const lines = memory.table[own & 1];
      Store::describe_lines(p, tile, lines, Tables{});
      // The first turn is the first warpgroup's.
      ptx::barrier_wait(shared.turn(group), (own & 1) ^ (group == 0));
      ++own;
      float sum[1][C.tiles_n][4];
      if (steps == 0) {
#pragma unroll
        for (int n = 0; n < C.tiles_n; ++n) sum[0][n][0] = sum[0][n][1] = sum[0][n][2] = sum[0][n][3] = 0;
      }
      multiply(shared, tile.type, sum, x, weights, stream, leader);
      if (leader) ptx::barrier_arrive(shared.turn(group ^ 1));
      ptx::wgmma_wait<0>();
      if (leader && steps > 0) {
        ptx::barrier_arrive(shared.x_empty(Ring<C.x_stages>{x.count - 1}.slot()));
        if (!resident) ptx::barrier_arrive(shared.weight_empty(Ring<C.stages>{weights.count - 1}.slot()));
      }
      Store::store(p, tile, memory, lines, sum);
    }
  }

  /// Issues the products of a tile. The last of them is still under way when this returns.
  __device__ static void multiply(const Shared& shared, int type, float (&sum)[1][C.tiles_n][4], Ring<C.x_stages>& x,
                                  Ring<C.stages>& weights, WeightStream& stream, bool leader) {
    const int steps = Tables::steps(type), first_entry = Tables::first_entry(type);
    bool first = true;
    for (int chunk = 0; chunk < chunks && steps > 0; ++chunk, ++x.count) {
      ptx::barrier_wait(shared.x_full(x.slot()), x.parity());
      const u32 x_tile = shared.x + x.slot() * hopper_x_bytes(C);
      for (int step = 0; step < steps; ++step, ++weights.count) {
        const u32 b = x_tile + Tables::low_offset(first_entry + step) * hopper_row_bytes;
        if (!resident) ptx::barrier_wait(shared.weight_full(weights.slot()), weights.parity());
        const u32 a = shared.weights + (resident ? chunk * steps + step : weights.slot()) * hopper_step_bytes(C);
        ptx::wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k)
          ptx::Wgmma<columns>::multiply(sum[0], ptx::wgmma_operand(a + k * 32), ptx::wgmma_operand(b + k * 32),
                                        !first || k > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        // The product before this one is complete: what it read may be overwritten.
        if (leader && !first) {
          if (!resident) ptx::barrier_arrive(shared.weight_empty(Ring<C.stages>{weights.count - 1}.slot()));
          if (step == 0) ptx::barrier_arrive(shared.x_empty(Ring<C.x_stages>{x.count - 1}.slot()));
        }
        if (!resident && leader) stream.advance(true);
        first = false;
      }
    }
  }
};

}  // namespace tconv::device
