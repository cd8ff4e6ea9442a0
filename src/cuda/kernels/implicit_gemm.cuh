// The general tensor-core kernel (sm_80): a transposed convolution as one matrix product per row block.
//
//   rows     (phase, output channel), packed into blocks whose phases share a list of steps
//   columns  a box of positions q
//   depth    for each chunk of channels, for each step (a tap's shift): eight words of channels
//
// Persistent blocks walk over tiles (row block, box, image). One pipeline of asynchronous copies runs
// ahead of the products and across tile borders, so the loads of the next tile are under way while the
// sums of this one are stored.
//
// C is the configuration (gemm_config.cuh), Tables the generated step and line tables (codegen.cpp).
#pragma once

#include "epilogue/staged_store.cuh"
#include "mma/products.cuh"
#include "tiles/weight_slab.cuh"
#include "tiles/x_tile.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables>
struct ImplicitGemm {
  using Params = ForwardParams;
  using X = XTile<C>;
  using W = WeightSlab<C>;
  using Store = StagedStore<C>;

  static constexpr int threads = threads_of(C);
  static constexpr int stages = C.stages;
  static constexpr int chunks = chunks_of(C);
  static constexpr bool weights_resident = C.resident_steps > 0;
  static constexpr int weight_words = weight_ring_words(C);
  static constexpr int x_words = C.x_stages * X::words;

  /// Issues the loads of one slab after another, `stages` − 1 slabs ahead of the products.
  struct Producer {
    const Params& p;
    u32* weight_ring;
    u32* x_ring;
    int tile_index, chunk = 0, step = 0;  // what comes next
    int slab_slot = 0, x_slot = 0;
    Tile tile;
    typename X::Loader loader;

    __device__ Producer(const Params& params, u32* weights, u32* x)
        : p(params), weight_ring(weights), x_ring(x), tile_index(blockIdx.x) {
      seek();
    }

    /// Moves to the first tile at or after tile_index that has products.
    __device__ void seek() {
      for (; tile_index < p.tiles; tile_index += gridDim.x) {
        tile = Tile::decode<C>(p, tile_index);
        if (Tables::steps(tile.type) > 0) {
          loader.seek(p, tile);
          return;
        }
      }
    }

    __device__ void load_next() {
      if (tile_index < p.tiles) {
        const int steps = Tables::steps(tile.type);
        if (step == 0) {
          loader.load(x_ring + x_slot * X::words, chunk);
          if (++x_slot == C.x_stages) x_slot = 0;
        }
        const int count = min(C.steps_per_slab, steps - step);
        if constexpr (!weights_resident) {
          W::load(weight_ring + slab_slot * W::words, packed_weights(p, tile, chunk * W::substeps * steps + step), count,
                  steps);
          if (++slab_slot == stages) slab_slot = 0;
        }
        if ((step += count) == steps) {
          step = 0;
          if (++chunk == chunks) {
            chunk = 0;
            tile_index += gridDim.x;
            seek();
          }
        }
      }
      ptx::commit_copies();
    }
  };

  __device__ static const u32* packed_weights(const Params& p, const Tile& tile, int step) {
    const i64 steps = i64(Tables::steps(tile.type)) * octets_of(C);
    const i64 block = i64(tile.group) * C.channel_blocks + tile.channel_block;
    return p.weight + Tables::weight_base(tile.type) + (block * steps + step) * W::step_words;
  }

  __device__ static void run(const Params& p) {
    extern __shared__ __align__(16) u32 shared[];
    u32* const weights = shared;
    u32* const x_ring = weights + weight_words;
    float* const staging = reinterpret_cast<float*>(x_ring + x_words);

    if constexpr (weights_resident) {
      for (int i = threadIdx.x; i < weight_words / 4; i += threads)
        ptx::copy_async<16>(ptx::shared_address(weights) + i * 16, p.weight + i * 4, true);
    }
    Producer producer(p, weights, x_ring);
#pragma unroll
    for (int s = 0; s < stages - 1; ++s) producer.load_next();

    const Consumer consumer;
    int slab_slot = 0, x_slot = 0;
    for (int index = blockIdx.x; index < p.tiles; index += gridDim.x) {
      const Tile tile = Tile::decode<C>(p, index);
      const int steps = Tables::steps(tile.type);
      float sum[C.tiles_m][C.tiles_n][4] = {};
      if (steps > 0) {
        for (int chunk = 0; chunk < chunks; ++chunk) {
          for (int step = 0; step < steps; step += C.steps_per_slab) {
            ptx::wait_copies<stages - 2>();
            __syncthreads();  // this slab has arrived for everyone, and the slot before it is free
            producer.load_next();
            const u32* slab = weights_resident ? weights + (chunk * W::substeps * steps + step) * W::step_words
                                               : weights + slab_slot * W::words;
            consumer.multiply(sum, x_ring + x_slot * X::words, slab, weights_resident ? steps : C.steps_per_slab,
                              tile.type, step, min(C.steps_per_slab, steps - step));
            if (++slab_slot == stages) slab_slot = 0;
          }
          if (++x_slot == C.x_stages) x_slot = 0;
        }
      }
      Store::store(p, tile, staging, sum, Tables{});
    }
  }

  /// One warp's part of the products.
  struct Consumer {
    int lane_offset;  // of this lane in a B fragment
    int column[C.tiles_n];
    int first_row_tile;
    static constexpr bool paired = C.chunk_words < 8;

    __device__ Consumer() {
      const int warp_m = warp_index() / C.warps_n, warp_n = warp_index() % C.warps_n;
      first_row_tile = warp_m * C.tiles_m;
      lane_offset = lane_index() % 4 * X::word_stride + lane_index() / 4 * X::position_stride;
#pragma unroll
      for (int n = 0; n < C.tiles_n; ++n)
        column[n] = lane_offset + X::column_offset((warp_n * C.tiles_n + n) * 8);
    }

    using F = Fragments<C.math, C.tiles_m, C.tiles_n>;

    /// The operands of one octet and step: `a` this lane's part of its row tiles.
    __device__ void load(F& f, const u32* x, const uint4* a, int type, int step) const {
      const int low = Tables::step_offset(type, step);
      const int high = paired ? Tables::step_offset_high(type, step) : low + 4 * X::word_stride;
#pragma unroll
      for (int m = 0; m < C.tiles_m; ++m) {
        const uint4 v = a[m * warp_size];
        f.a[m][0] = v.x, f.a[m][1] = v.y, f.a[m][2] = v.z, f.a[m][3] = v.w;
      }
#pragma unroll
      for (int n = 0; n < C.tiles_n; ++n) {
        f.b[n][0] = x[column[n] + low];
        f.b[n][1] = x[column[n] + high];
      }
    }

    /// sum += the slab's products. Operands of the next product are read while this one is formed, in two
    /// buffers whose turn is known at compile time; what is read beyond the last is not used.
    __device__ void multiply(float (&sum)[C.tiles_m][C.tiles_n][4], const u32* x, const u32* slab, int octet_steps,
                             int type, int first_step, int count) const {
      constexpr int steps_per_turn = W::substeps % 2 == 0 ? 1 : 2;
      constexpr int products = W::substeps * steps_per_turn;
      const uint4* const a = reinterpret_cast<const uint4*>(slab) + first_row_tile * warp_size + lane_index();
      const auto load_product = [&](F& f, int s, int k) {
        s = min(s, count - 1);
        load(f, x + k * 8 * X::word_stride, a + (k * octet_steps + s) * (W::step_words / 4), type, first_step + s);
      };
      F f[2];
      load_product(f[0], 0, 0);
#pragma unroll 1
      for (int turn = 0; turn < count; turn += steps_per_turn) {
#pragma unroll
        for (int i = 0; i < products; ++i) {
          const int s = turn + i / W::substeps;
          if (s == count) break;
          load_product(f[(i + 1) % 2], turn + (i + 1) / W::substeps, (i + 1) % W::substeps);
          f[i % 2].multiply(sum, C.masked ? Tables::step_mask(type, first_step + s) >> first_row_tile : ~0u);
        }
      }
    }
  };
};

}  // namespace tconv::device
