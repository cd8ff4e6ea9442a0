// The march of a block: which slices of x a tile reads, one after the other, and which slices of outputs it stores.
#pragma once

#include "launch_params.cuh"
#include "team.cuh"

namespace tconv::device {

/// Slices of outputs, and those of x that they read: output slice q reads x from q - slots + 1 to q.
template <GemmConfig C>
struct March {
  int first, end;      // of outputs, as positions
  int x_first, x_end;  // of x, those outside of it left out
  __device__ March(const ForwardParams& p, const Tile& tile)
      : first(tile.origin.d),
        end(min(first + C.box.d, p.out.d + C.padding.d)),
        x_first(max(first - (C.march - 1), 0)),
        x_end(min(end, p.in.d)) {}
};

/// The slices of x of all tiles of a block, each as a tile that is one slice deep.
template <GemmConfig C, class TablesOfTypes>
struct MarchSchedule {
  using Tables = TablesOfTypes;
  TeamSchedule<C, Tables> tiles;
  int slice = 0;
  bool began = false;  // the march through the tile

  __device__ MarchSchedule(const ForwardParams& p, int team) : tiles(p, team) {}
  __device__ bool done() const { return tiles.done(); }
  __device__ void advance() { ++slice; }
  __device__ bool begins_tile() const { return !began; }
  /// Goes on to the next slice that is inside of x, from this one on; false where there is none.
  __device__ bool seek_products(const ForwardParams& p, Tile& found) {
    for (; !done(); tiles.advance(), slice = 0) {
      found = tiles.tile(p);
      const March<C> march(p, found);
      began = slice > march.x_first;
      slice = max(slice, march.x_first);
      found.origin.d = slice;
      if (slice < march.x_end) return true;
    }
    return false;
  }
};

}  // namespace tconv::device
