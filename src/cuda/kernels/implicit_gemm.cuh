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
#include "ptx/launch.cuh"
#include "sizes/general.cuh"
#include "tiles/weight_slab.cuh"
#include "tiles/x_tile.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables>
struct ImplicitGemm {
  using Params = ForwardParams;
  using Word = OperandWord<C>;
  using X = XTile<C>;
  using W = WeightSlab<C>;
  using Store = StagedStore<C>;
  using Sum = SumFor<C.math>;

  static constexpr int threads = threads_of(C);
  static constexpr int stages = C.stages;
  static constexpr int chunks = chunks_of(C);
  static constexpr bool weights_resident = C.resident_steps > 0;
  static constexpr int weight_words = weight_ring_words(C);
  static constexpr int x_words = C.x_stages * X::words;

  /// Issues the loads of one slab after another, `stages` − 1 slabs ahead of the products.
  struct Producer {
    const Params& p;
    Word* weight_ring;
    Word* x_ring;
    int tile_index, chunk = 0, step = 0;  // what comes next
    int slab_slot = 0, x_slot = 0;
    Tile tile;
    typename X::Loader loader;

    __device__ Producer(const Params& params, Word* weights, Word* x)
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
          W::load(weight_ring + slab_slot * W::words, packed_weights(p, tile, chunk * W::substeps * steps + step),
                  count, steps);
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

  __device__ static const Word* packed_weights(const Params& p, const Tile& tile, int step) {
    const i64 steps = i64(Tables::steps(tile.type)) * octets_of(C);
    const i64 block = i64(tile.group) * C.channel_blocks + tile.channel_block;
    return reinterpret_cast<const Word*>(p.weight) + Tables::weight_base(tile.type) +
           (block * steps + step) * W::step_words;
  }

  __device__ static void run(const Params& p) {
    extern __shared__ __align__(16) u32 shared[];
    Word* const weights = reinterpret_cast<Word*>(shared);
    Word* const x_ring = weights + weight_words;
    const auto epilogue = Store::memory(x_ring + x_words);
    ptx::let_next_begin();
    Store::clear(epilogue);
    ptx::wait_for_previous();

    if constexpr (weights_resident) {
      constexpr int copies = weight_words * int(sizeof(Word)) / 16;
      for (int i = threadIdx.x; i < copies; i += threads)
        ptx::copy_async<16>(ptx::shared_address(weights) + i * 16, p.weight + i * 4, true);
    }
    Producer producer(p, weights, x_ring);
#pragma unroll
    for (int s = 0; s < stages - 1; ++s) producer.load_next();

    const Consumer consumer;
    int slab_slot = 0, x_slot = 0, turn = 0;
    for (int index = blockIdx.x; index < p.tiles; index += gridDim.x, turn ^= 1) {
      const Tile tile = Tile::decode<C>(p, index);
      Store::describe_lines(p, tile, epilogue.table[turn], Tables{});
      const int steps = Tables::steps(tile.type), first_entry = Tables::first_entry(tile.type);
      Sum sum[C.tiles_m][C.tiles_n][4] = {};
      if (steps > 0) {
        for (int chunk = 0; chunk < chunks; ++chunk) {
          for (int step = 0; step < steps; step += C.steps_per_slab) {
            ptx::wait_copies<stages - 2>();
            if constexpr (C.math == Math::tf32) {
              if (step == 0) X::Loader::round(x_ring + x_slot * X::words);
            }
            __syncthreads();  // this slab has arrived for everyone, and the slot before it is free
            producer.load_next();
            const Word* slab = weights_resident ? weights + (chunk * W::substeps * steps + step) * W::step_words
                                                : weights + slab_slot * W::words;
            consumer.multiply(sum, x_ring + x_slot * X::words, slab, weights_resident ? steps : C.steps_per_slab,
                              first_entry + step, min(C.steps_per_slab, steps - step));
            if (++slab_slot == stages) slab_slot = 0;
          }
          if (++x_slot == C.x_stages) x_slot = 0;
        }
      }
      Store::store(p, tile, epilogue, epilogue.table[turn], sum);
    }
  }

  /// One warp's part of the products.
  struct Consumer {
    int first_row_tile;
    // Where this lane finds its word of each column tile. Tiles of one row of the box follow each other.
    static constexpr bool one_row = C.box.w % (C.tiles_n * 8) == 0;
    int column[one_row ? 1 : C.tiles_n];
    static constexpr bool paired = C.chunk_words < 8;

    __device__ Consumer() {
      const int warp_m = warp_index() / C.warps_n, warp_n = warp_index() % C.warps_n;
      first_row_tile = warp_m * C.tiles_m;
      const int lane_offset = lane_index() % 4 * X::word_stride + lane_index() / 4 * X::position_stride;
#pragma unroll
      for (int n = 0; n < (one_row ? 1 : C.tiles_n); ++n)
        column[n] = lane_offset + X::column_offset((warp_n * C.tiles_n + n) * 8);
    }

    using F = Fragments<C.math, C.tiles_m, C.tiles_n>;

    /// A step as the table has it. Reading the table takes as long as a product: it is read two steps early.
    struct Entry {
      int low, high;  // where the step finds its first and its last four words
      u32 mask;       // the row tiles it is for
    };
    __device__ Entry entry(int index) const {
      return {Tables::low_offset(index), paired ? Tables::high_offset(index) : 0,
              C.masked ? Tables::mask(index) >> first_row_tile : ~0u};
    }

    /// The operands of one product: `x` the octet, `a` this lane's part of the step's row tiles.
    __device__ void load(F& f, const Word* x, const uint4* a, const Entry& step) const {
#pragma unroll
      for (int m = 0; m < C.tiles_m; ++m) read_fragment(f.a[m], a + m * W::tile_copies);
#pragma unroll
      for (int n = 0; n < C.tiles_n; ++n) {
        const Word* from = x + (one_row ? column[0] + n * 8 * X::position_stride : column[n]);
        f.b[n][0] = from[step.low];
        f.b[n][1] = paired ? from[step.high] : from[step.low + 4 * X::word_stride];
      }
    }

    /// sum += the slab's products, step by step and octet by octet. Operands are read one product early, into
    /// two buffers that take turns; what is read after the last step repeats it and is not used.
    __device__ void multiply(Sum (&sum)[C.tiles_m][C.tiles_n][4], const Word* x, const Word* slab, int octet_steps,
                             int first_entry, int count) const {
      const uint4* const a = reinterpret_cast<const uint4*>(slab) + first_row_tile * W::tile_copies + lane_index();
      const auto entry_of = [&](int s) { return entry(first_entry + min(s, count - 1)); };
      const auto load_from = [&](F& f, const Entry& step, int s, int k) {
        load(f, x + k * 8 * X::word_stride, a + (k * octet_steps + min(s, count - 1)) * W::step_copies, step);
      };
      F f[2];
      Entry now = entry_of(0), next = entry_of(1);
      load_from(f[0], now, 0, 0);
      if constexpr (W::substeps == 1) {
        Entry after = entry_of(2);
#pragma unroll 1
        for (int s = 0; s + 1 < count; s += 2) {
          load_from(f[1], next, s + 1, 0);
          f[0].multiply(sum, now.mask);
          const u32 mask = next.mask;
          now = after, next = entry_of(s + 3), after = entry_of(s + 4);
          load_from(f[0], now, s + 2, 0);
          f[1].multiply(sum, mask);
        }
        if (count % 2 == 1) f[0].multiply(sum, now.mask);
      } else {
#pragma unroll 1
        for (int s = 0; s < count; ++s) {
          const Entry after = entry_of(s + 2);
#pragma unroll
          for (int k = 0; k < W::substeps; ++k) {
            if (k + 1 < W::substeps)
              load_from(f[(k + 1) % 2], now, s, k + 1);
            else
              load_from(f[0], next, s + 1, 0);
            f[k % 2].multiply(sum, now.mask);
          }
          now = next, next = after;
        }
      }
    }

    static_assert(W::substeps == 1 || W::substeps % 2 == 0, "operand buffers must take turns");
  };
};

}  // namespace tconv::device
