// The panels of a tile, one after the other, as those who fill them, who bring weights and who multiply all count them:
// one for each chunk of channels. Or one for each chunk and each shift along depth and height: where taps reach far, a
// box's halo is larger than shared memory, and most of it is read by few steps. Then panels whose rows are all outside
// of the image are left out, but for the first of a chunk: whoever waits for a tile's first panel need not know.
#pragma once

#include "tile.cuh"

namespace tconv::device {

/// Goes from a panel to the next, which may be of the next chunk.
template <GemmConfig C, class Tables, bool ByShift = panels_by_shift(C)>
struct PanelWalk {
  __device__ PanelWalk(const ForwardParams&, const Tile&) {}
  __device__ void advance(int& chunk) { ++chunk; }
  /// The first step of the panel, and the one behind its last, of those of the tile's type.
  __device__ static constexpr int first_step() { return 0; }
  __device__ static constexpr int end_step(int steps) { return steps; }
};

template <GemmConfig C, class Tables>
struct PanelWalk<C, Tables, true> {
  static_assert(C.turned_once && C.images == 1 && !scales(C.math));
  const ForwardParams& p;
  const Tile& tile;
  int step = 0;
  __device__ PanelWalk(const ForwardParams& params, const Tile& of_tile) : p(params), tile(of_tile) {}
  __device__ void advance(int& chunk) {
    do {
      step += C.panel_steps;
      if (step < Tables::steps(tile.type)) continue;
      step = 0, ++chunk;
      return;
    } while (!reads_inputs());
  }
  __device__ int first_step() const { return step; }
  __device__ int end_step(int) const { return step + C.panel_steps; }

  /// The shift of the panel.
  __device__ int depth_shift() const { return Tables::depth_shift(Tables::first_entry(tile.type) + step); }
  __device__ int height_shift() const { return Tables::height_shift(Tables::first_entry(tile.type) + step); }

 private:
  __device__ bool reads_inputs() const {
    const int d = tile.origin.d - depth_shift(), h = tile.origin.h - height_shift();
    return d < p.in.d && d + C.box.d > 0 && h < p.in.h && h + C.box.h > 0;
  }
};

}  // namespace tconv::device
