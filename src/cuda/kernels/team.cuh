// What the warpgroup kernels share: rings of slots, and which tiles a team works on.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/bulk_copy.cuh"
#include "sizes/weights.cuh"
#include "tile.cuh"

namespace tconv::device {

/// A place in a ring of slots: which one is next, and the parity its barriers are at.
template <int Slots>
struct Ring {
  int slot = 0;
  u32 parity = 0;
  __device__ void advance() {
    if (++slot == Slots) slot = 0, parity ^= 1;
  }
};

template <bool First, class A, class B>
struct Select {
  using Type = A;
};
template <class A, class B>
struct Select<false, A, B> {
  using Type = B;
};

/// The tiles of a team: every `stride`th from its own. Where types without taps are filled, so many from one to the
/// next that a team has all types of a box, one after the other: teams have equal work then.
template <GemmConfig C, class TablesOfTypes>
struct TeamSchedule {
  using Tables = TablesOfTypes;
  static constexpr bool resident = C.resident_steps > 0;
  static constexpr int in_turn = C.fills ? C.types : 1;
  static_assert(!C.fills || (!resident && C.depth_splits == 1));
  int block, box, box_stride, boxes;
  __device__ TeamSchedule(const ForwardParams& p, int team) {
    constexpr int blocks = block_sets_of(C);
    if constexpr (resident) {
      block = blockIdx.x % blocks;
      box = blockIdx.x / blocks * C.teams + team, box_stride = gridDim.x / blocks * C.teams;
      boxes = p.tiles / blocks;
    } else {
      block = 0;
      box = (blockIdx.x * C.teams + team) * in_turn, box_stride = gridDim.x * C.teams;
      boxes = p.tiles;
    }
  }
  __device__ bool done() const { return box >= boxes; }
  /// Whether a tile is the first of what is summed at one scale.
  __device__ static constexpr bool begins_tile() { return true; }
  __device__ void advance() {
    if constexpr (in_turn > 1)
      box += box % in_turn < in_turn - 1 ? 1 : (box_stride - 1) * in_turn + 1;
    else
      box += box_stride;
  }
  __device__ Tile tile(const ForwardParams& p) const {
    return resident ? Tile::decode<C>(p, block, box) : Tile::decode<C>(p, box);
  }
  /// Goes on to the next tile that has products, from this one on; false where there is none.
  __device__ bool seek_products(const ForwardParams& p, Tile& found) {
    for (; !done(); advance()) {
      found = tile(p);
      if (Tables::steps(found.type) > 0) return true;
    }
    return false;
  }
  /// The packed weights of a tile.
  __device__ const unsigned char* weights(const ForwardParams& p, const Tile& tile) const {
    const i64 steps = i64(Tables::steps(tile.type)) * octets_of(C);
    const i64 row_block = i64(tile.group) * C.channel_blocks + tile.channel_block;
    return reinterpret_cast<const unsigned char*>(p.weight + Tables::weight_base(tile.type)) +
           row_block * steps * weight_parts(C) * row_step_bytes(C);
  }
};

/// Begins to copy a slab of streamed weights: `count` steps of a chunk, from the packed weights of a tile that has
/// `steps` of them.
template <GemmConfig C>
__device__ void load_slab(u32 shared, const unsigned char* packed, int chunk, int step, int count, int steps,
                          u32 barrier) {
  constexpr int group = C.octet_group, octets = substeps_of(C), bytes = weight_parts(C) * row_step_bytes(C);
  const int first = chunk * octets;
  ptx::barrier_arrive_expect(barrier, count * octets * bytes);
  if constexpr (octets >= group) {
    packed += i64(first * steps + step * group) * bytes;
#pragma unroll
    for (int o = 0; o < octets; o += group)
      ptx::bulk_load(shared + slab_place(C, o, 0) * bytes, packed + i64(o) * steps * bytes, count * group * bytes,
                     barrier);
  } else {
    packed += i64((first / group * steps + step) * group + first % group) * bytes;
    for (int s = 0; s < count; ++s)
      ptx::bulk_load(shared + s * octets * bytes, packed + i64(s) * group * bytes, octets * bytes, barrier);
  }
}

/// Begins to copy the weights that a block keeps. The largest copy an instruction takes is below a megabyte, and
/// shared memory is smaller still.
template <GemmConfig C, class Tables>
__device__ void load_resident_weights(const ForwardParams& p, u32 shared, u32 barrier) {
  const TeamSchedule<C, Tables> schedule(p, 0);
  const Tile tile = Tile::decode<C>(p, schedule.block, 0);
  // Those of neighbouring channel blocks follow one another.
  constexpr int bytes = C.team_blocks * resident_bytes(C);
  ptx::barrier_arrive_expect(barrier, bytes);
  ptx::bulk_load(shared, schedule.weights(p, tile), bytes, barrier);
}

/// Hands a slot over: one lane of each warp says so. That orders what tensor cores have read; what lanes read or wrote
/// themselves takes a __syncwarp() in between.
__device__ inline void release(u32 barrier) {
  if (lane_index() == 0) ptx::barrier_arrive(barrier);
}

}  // namespace tconv::device
