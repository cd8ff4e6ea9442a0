// The weights of the panel kernel, in the order its products take them: there to stay, streamed by the threads that
// multiply, or where x is copied, by a loading thread.
//
// Of each kind, `next` is the slab whose products are next, and `refill` says that the products of a slab are complete.
#pragma once

#include "panel/shared.cuh"
#include "team.cuh"
#include "tiles/panel_walk.cuh"

namespace tconv::device {

/// The slabs of weights of a channel block. All threads keep count, one copies; where parts of the box share them, one
/// of the first part. It fills a slot one slab later then, so that it need not wait for the other part.
template <GemmConfig C, class Tables>
struct StreamedWeights {
  static constexpr int group_steps = C.steps_per_slab;
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  const ForwardParams& p;
  const Shared& shared;
  TeamSchedule<C, Tables> schedule;
  const unsigned char* packed = nullptr;  // of the tile
  int steps = 0, chunk = 0, step = 0;     // of the next slab
  int split = 0;                          // of the tile
  Ring<C.stages> next;
  Ring<C.stages> before;  // the one used last, where that is still to be filled again
  bool waits = false;

  __device__ StreamedWeights(const ForwardParams& params, const Shared& s)
      : p(params), shared(s), schedule(params, Roles::team()) {
    seek();
#pragma unroll 1
    for (int slot = 0; slot < C.stages; ++slot)
      if (Roles::part() == 0) copy(slot);
  }
  __device__ void seek() {
    Tile tile;
    if (!schedule.seek_products(p, tile)) return;
    tile.channel_block += Roles::block();
    steps = Tables::steps(tile.type), packed = schedule.weights(p, tile);
    if constexpr (C.depth_splits > 1) split = tile.split, chunk = first_chunk_of();
  }
  /// Of the tile, or of the one behind it: constants where tiles share no chunks.
  __device__ int first_chunk_of(int further = 0) const {
    return C.depth_splits == 1 ? further * chunks_of(C) : first_chunk(C, split + further);
  }
  __device__ void copy(int slot) {
    if (schedule.done()) return;
    if (Roles::thread() == 0)
      load_slab<C>(shared.weights_of(Roles::block()) + slot * row_slab_bytes(C), packed, chunk, step, group_steps,
                   steps, shared.weights_full(Roles::block(), slot));
    step += group_steps;
    if (step == steps) {
      step = 0;
      if (++chunk == first_chunk_of(1)) {
        chunk = 0;
        schedule.advance();
        seek();
      }
    }
  }
  /// Fills a slot again whose products are complete, as far as this warp knows.
  __device__ void refill(const Ring<C.stages>& used) {
    release(shared.weights_empty(Roles::block(), used.slot));
    if constexpr (C.box_parts == 1) {
      fill(used);
    } else if (Roles::part() == 0) {
      if (waits) fill(before);
      before = used, waits = true;
    }
  }
  __device__ void fill(const Ring<C.stages>& used) {
    if (Roles::thread() == 0) ptx::barrier_wait(shared.weights_empty(Roles::block(), used.slot), used.parity);
    copy(used.slot);
  }
};

/// Of weights that are there to stay.
template <GemmConfig C>
struct ResidentWeights {
  Ring<1> next;
  __device__ ResidentWeights(const ForwardParams&, const PanelShared<C>&) {
    ptx::barrier_wait(PanelShared<C>::weights_resident(), 0);
  }
  __device__ void refill(const Ring<1>&) {}
};

/// Of weights that loading threads see to.
template <GemmConfig C, class Tables>
struct CopiedWeights {
  static constexpr int group_steps = C.steps_per_slab;
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  const Shared& shared;
  Ring<C.stages> next;
  __device__ CopiedWeights(const ForwardParams&, const Shared& s) : shared(s) {}
  __device__ void refill(const Ring<C.stages>& used) { release(shared.weights_empty(Roles::block(), used.slot)); }

  /// What the loading thread does for a channel block.
  __device__ static void copy(const ForwardParams& p, const Shared& shared, int block) {
    Ring<C.stages> ring;
    Tile tile;
    for (TeamSchedule<C, Tables> schedule(p, Roles::team()); schedule.seek_products(p, tile); schedule.advance()) {
      tile.channel_block += block;
      const unsigned char* const packed = schedule.weights(p, tile);
      const int steps = Tables::steps(tile.type);
      const int first = first_chunk(C, tile.split), end = first_chunk(C, tile.split + 1);
      PanelWalk<C, Tables> walk(p, tile);
#pragma unroll 1
      for (int chunk = first; chunk < end; walk.advance(chunk))
#pragma unroll 1
        for (int step = walk.first_step(); step < walk.end_step(steps); step += group_steps, ring.advance()) {
          ptx::barrier_wait(shared.weights_empty(block, ring.slot), ring.parity ^ 1);
          load_slab<C>(shared.weights_of(block) + ring.slot * row_slab_bytes(C), packed, chunk, step, group_steps,
                       steps, shared.weights_full(block, ring.slot));
        }
    }
  }
};

template <GemmConfig C, class Tables>
using PanelWeights =
    typename Select<(C.resident_steps > 0), ResidentWeights<C>,
                    typename Select<copies_x(C), CopiedWeights<C, Tables>, StreamedWeights<C, Tables>>::Type>::Type;

}  // namespace tconv::device
