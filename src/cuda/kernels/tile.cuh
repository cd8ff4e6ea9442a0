// Tiles of work, decoded from their index.
#pragma once

#include "element.cuh"
#include "launch_params.cuh"

namespace tconv::device {

/// One tile of work: a row block over one box of positions of one image.
struct Tile {
  int type, channel_block, group;  // the row block
  Int3 origin;                     // first position q of the box
  int n;

  template <GemmConfig C>
  __device__ static Tile decode(const ForwardParams& p, int index) {
    Tile t;
    t.type = index % C.types, index /= C.types;
    t.channel_block = index % C.channel_blocks, index /= C.channel_blocks;
    t.group = index % C.groups, index /= C.groups;
    t.origin.w = C.first_position.w + index % p.boxes.w * C.box.w, index /= p.boxes.w;
    t.origin.h = C.first_position.h + index % p.boxes.h * C.box.h, index /= p.boxes.h;
    t.origin.d = C.first_position.d + index % p.boxes.d * C.box.d;
    t.n = index / p.boxes.d;
    return t;
  }
};

}  // namespace tconv::device
