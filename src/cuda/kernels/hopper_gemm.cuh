// The Hopper kernel (sm_90a): the same matrix product on wgmma, for TF32 and channels first.
//
//   one warpgroup   copies x tiles of 32 channels as they lie in memory, rounds them and transposes them to
//                   K-major rows, one row of 128 bytes for each position
//   two warpgroups  multiply: for each chunk and step, 64 rows by 256 columns each (or 64 by 128, side by
//                   side), then store
//
// Columns run over the rows of the transposed tile, halo included: a step is the same operand, started a
// few rows earlier, in one, two or three dimensions alike. Columns on the halo are computed and not stored.
// Weights stream through a ring of bulk copies, or stay in shared memory where they fit.
#pragma once

#include "epilogue/staged_store.cuh"
#include "ptx/barrier.cuh"
#include "ptx/wgmma.cuh"
#include "tiles/x_tile.cuh"

namespace tconv::device {

/// A ring of slots and the phase its barriers are in.
template <int Slots>
struct Ring {
  int slot = 0;
  u32 phase = 0;
  __device__ void advance() {
    if (++slot == Slots) slot = 0, phase ^= 1;
  }
};

template <GemmConfig C, class Tables>
struct HopperGemm {
  static constexpr int producers = 128, consumers = 256;
  static constexpr int threads = producers + consumers;
  static constexpr int chunks = chunks_of(C);
  static constexpr bool resident = C.resident_steps > 0;
  static constexpr bool split_columns = C.warps_m == 4;  // 64 rows: the warpgroups share the columns
  static constexpr int group_columns = C.tiles_n * 8;    // of one warpgroup

  /// x as it is copied: the tile of the general kernel, loaded by the producers.
  static constexpr GemmConfig raw_config() {
    GemmConfig c = C;
    c.warps_m = 4, c.warps_n = 1, c.chunk_words = hopper_piece;
    return c;
  }
  using Raw = XTile<raw_config()>;

  struct Consumers {
    __device__ static int thread() { return threadIdx.x - producers; }
    __device__ static int warp_row() { return split_columns ? thread() / warp_size % 4 : thread() / warp_size; }
    __device__ static int warp_column() { return split_columns ? thread() / 128 : 0; }
    __device__ static void sync() { ptx::named_sync<1, consumers>(); }
  };
  using Store = StagedStore<C, Consumers>;

  struct Shared {
    u32 x, weights;  // addresses
    unsigned char* x_pointer;
    unsigned char* raw;
    void* epilogue;
    u32 barriers;
    __device__ Shared() {
      extern __shared__ __align__(16) unsigned char memory[];
      const u32 base = ptx::shared_address(memory), aligned = (base + 1023) & ~1023u;
      x_pointer = memory + (aligned - base);
      x = aligned;
      weights = x + round_up(C.x_stages * hopper_x_bytes(C), 1024);
      raw = x_pointer + (weights - x) + round_up(hopper_weight_bytes(C), 1024);
      epilogue = raw + C.raw_stages * hopper_raw_bytes(C);
      barriers = ptx::shared_address(epilogue) + round_up(epilogue_bytes(C), 16);
    }
    __device__ u32 x_full(int slot) const { return barriers + slot * 8; }
    __device__ u32 x_empty(int slot) const { return x_full(C.x_stages + slot); }
    __device__ u32 weight_full(int slot) const { return x_full(2 * C.x_stages + slot); }
    __device__ u32 weight_empty(int slot) const { return x_full(2 * C.x_stages + C.stages + slot); }
    __device__ u32 weights_resident() const { return x_full(2 * (C.x_stages + C.stages)); }
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
        ptx::barrier_init(shared.x_empty(i), 2);
      }
      for (int i = 0; i < C.stages; ++i) {
        ptx::barrier_init(shared.weight_full(i), 1);
        ptx::barrier_init(shared.weight_empty(i), 2);
      }
      ptx::barrier_init(shared.weights_resident(), 1);
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
      unsigned char* const x = shared.x_pointer + to.slot * hopper_x_bytes(C);
#pragma unroll
      for (int half = 0; half < hopper_chunk / hopper_piece; ++half) {
        ptx::wait_copies<C.raw_stages - 1>();
        ptx::named_sync<2, producers>();  // the piece is here for every producer
        if (half == 0) ptx::barrier_wait(shared.x_empty(to.slot), to.phase ^ 1);
        transpose(x, reinterpret_cast<const u32*>(shared.raw + from * hopper_raw_bytes(C)), half);
        if (++from == C.raw_stages) from = 0;
        if (half == hopper_chunk / hopper_piece - 1) {
          ptx::async_proxy_fence();
          ptx::barrier_arrive(shared.x_full(to.slot));
          to.advance();
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

  /// Streams weights step by step, one thread for both warpgroups.
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
    __device__ void copy_next() {
      if (tile_index >= p.tiles) return;
      ptx::barrier_wait(shared.weight_empty(ring.slot), ring.phase ^ 1);
      ptx::barrier_arrive_expect(shared.weight_full(ring.slot), hopper_step_bytes(C));
      ptx::bulk_copy(shared.weights + ring.slot * hopper_step_bytes(C), next, hopper_step_bytes(C),
                     shared.weight_full(ring.slot));
      next += hopper_step_bytes(C);
      ring.advance();
      if (++step == steps) {
        step = 0;
        tile_index += gridDim.x;
        seek();
      }
    }
  };

  __device__ static void consume(const ForwardParams& p, const Shared& shared) {
    const int group = Consumers::thread() / 128;
    const bool leader = Consumers::thread() % 128 == 0;
    const bool streams = !resident && Consumers::thread() == 0;
    const u32 a_offset = (split_columns ? 0 : group) * 64 * hopper_row_bytes;
    const u32 b_offset = (split_columns ? group : 0) * group_columns * hopper_row_bytes;

    const auto memory = Store::memory(shared.epilogue);
    Store::clear(memory);
    WeightStream stream(p, shared);
    if (streams)
      for (int i = 0; i < C.stages - 1; ++i) stream.copy_next();
    if constexpr (resident) {
      if (Consumers::thread() == 0) {
        ptx::barrier_arrive_expect(shared.weights_resident(), hopper_weight_bytes(C));
        ptx::bulk_copy(shared.weights, p.weight, hopper_weight_bytes(C), shared.weights_resident());
      }
      ptx::barrier_wait(shared.weights_resident(), 0);
    }

    Ring<C.x_stages> x;
    Ring<C.stages> weights;
    int turn = 0;
    for (int index = blockIdx.x; index < p.tiles; index += gridDim.x, turn ^= 1) {
      const Tile tile = Tile::decode<C>(p, index);
      const int steps = Tables::steps(tile.type), first_entry = Tables::first_entry(tile.type);
      Store::describe_lines(p, tile, memory.table[turn], Tables{});
      float sum[1][C.tiles_n][4];
      if (steps == 0) {
#pragma unroll
        for (int n = 0; n < C.tiles_n; ++n) sum[0][n][0] = sum[0][n][1] = sum[0][n][2] = sum[0][n][3] = 0;
      }
      int product = 0;
      for (int chunk = 0; chunk < chunks && steps > 0; ++chunk) {
        ptx::barrier_wait(shared.x_full(x.slot), x.phase);
        const u32 x_tile = shared.x + x.slot * hopper_x_bytes(C) + b_offset;
        for (int step = 0; step < steps; ++step, ++product) {
          const u32 b = x_tile + Tables::low_offset(first_entry + step) * hopper_row_bytes;
          if (!resident) ptx::barrier_wait(shared.weight_full(weights.slot), weights.phase);
          const u32 a = shared.weights + (resident ? chunk * steps + step : weights.slot) * hopper_step_bytes(C) + a_offset;
          ptx::wgmma_fence();
#pragma unroll
          for (int k = 0; k < 4; ++k)
            ptx::Wgmma<group_columns>::multiply(sum[0], ptx::wgmma_operand(a + k * 32), ptx::wgmma_operand(b + k * 32),
                                                product > 0 || k > 0);
          ptx::wgmma_commit();
          if (!resident) {
            // The step before this one is complete: its weights may be overwritten.
            ptx::wgmma_wait<1>();
            if (product > 0 && leader) ptx::barrier_arrive(shared.weight_empty(weights.slot == 0 ? C.stages - 1 : weights.slot - 1));
            if (streams) stream.copy_next();
            weights.advance();
          }
        }
        ptx::wgmma_wait<0>();
        if (leader) ptx::barrier_arrive(shared.x_empty(x.slot));
        x.advance();
      }
      if (!resident && steps > 0 && leader)
        ptx::barrier_arrive(shared.weight_empty(weights.slot == 0 ? C.stages - 1 : weights.slot - 1));
      Store::store(p, tile, memory, memory.table[turn], sum);
    }
  }
};

}  // namespace tconv::device
