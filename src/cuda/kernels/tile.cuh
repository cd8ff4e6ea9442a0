// Tiles of work, decoded from their index.
#pragma once

#include "element.cuh"
#include "launch_params.cuh"
#include "sizes/tile.cuh"

namespace tconv::device {

/// One tile of work: a row block over one box of positions of one image, or of a few.
struct Tile {
  int type, channel_block, group;  // the row block, or the first of those that a team works on
  Int3 origin;                     // first position q of the box
  int box;                         // which box of the call
  int box_w;                       // and along the width
  int n;                           // the (first) image
  int sum, split;                  // which sum of the call, and which part of its depth

  /// Row blocks run fastest: they share the box. For teams they begin with another one in every round of the grid:
  /// types differ in their steps, and where the grid is a multiple of their number, the same teams would always
  /// have the longest, unless a team has all types of a box in turn. (The general kernel works out tiles too often for
  /// the division.)
  template <GemmConfig C>
  __device__ static Tile decode(const ForwardParams& p, int index) {
    constexpr int count = block_sets_of(C);
    const int split = index % C.depth_splits;
    index /= C.depth_splits;
    const int box = index / count;
    int block = index % count;
    if constexpr (C.teams > 0 && C.types > 1 && !C.fills)
      block = (block + box / max(int(gridDim.x) * C.teams / count, 1)) % count;
    Tile t = decode<C>(p, block, box);
    t.sum = index, t.split = split;
    return t;
  }

  template <GemmConfig C>
  __device__ static Tile decode(const ForwardParams& p, int block, int box) {
    Tile t;
    t.sum = t.split = 0;
    t.type = block % C.types, block /= C.types;
    constexpr int sets = C.channel_blocks / C.team_blocks;
    t.channel_block = block % sets * C.team_blocks, t.group = block / sets;
    t.box = box;
    t.box_w = p.boxes.w.take(box);
    t.origin.w = C.first_position.w + t.box_w * box_advance(C);
    t.origin.h = C.first_position.h + p.boxes.h.take(box) * C.box.h;
    t.origin.d = C.first_position.d + p.boxes.d.take(box) * C.box.d;
    t.n = box * C.images;
    return t;
  }
};

}  // namespace tconv::device
