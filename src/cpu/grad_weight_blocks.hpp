// How grad-weight divides its channels and positions, and which kernel multiplies them.
//
// Grad-weight is, for every tap, a matrix product over positions: x[in, position] · gy[out, position + shift].
//
//   Outer products: both sides are transposed on their way into a tile, positions outermost. One side's channels
//   fill vectors, the other's are broadcast in panels of rows; no lanes are left to add up, and few positions
//   make a tile.
//   Dot products: positions fill the vectors, nothing is transposed. For layers with a handful of channels.
#pragma once

#include "cpu/convolution.hpp"
#include "cpu/packed_weight.hpp"

namespace tconv::cpu {

struct GradWeightBlocks {
  /// Items a run is cut into, for threads to share.
  static constexpr std::int64_t wanted_items = 32;
  /// Positions below which another chunk costs more than it helps: each has partial sums of its own to add.
  static constexpr std::int64_t fewest_chunk_positions = 2048;

  bool outer = false;              // outer products rather than dot products
  bool inputs_in_vectors = false;  // of outer products: the side whose channels fill the vectors
  std::int64_t in_unit = 1;        // blocks are cut between units, so that vectors and panels stay whole
  std::int64_t out_unit = 1;
  std::int64_t in_blocks = 1;
  std::int64_t out_blocks = 1;
  std::int64_t positions = 1;  // wanted in a tile

  Span in_block(std::int64_t channels, std::int64_t index) const {
    return block(channels, in_unit, in_blocks, index);
  }
  Span out_block(std::int64_t channels, std::int64_t index) const {
    return block(channels, out_unit, out_blocks, index);
  }
  /// Channels of the largest block.
  std::int64_t most_in(std::int64_t channels) const { return largest(channels, in_unit, in_blocks); }
  std::int64_t most_out(std::int64_t channels) const { return largest(channels, out_unit, out_blocks); }

 private:
  static Span block(std::int64_t channels, std::int64_t unit, std::int64_t blocks, std::int64_t index) {
    const Span units = piece(ceil_div(channels, unit), blocks, index);
    return {units.begin * unit, std::min(units.end * unit, channels)};
  }
  static std::int64_t largest(std::int64_t channels, std::int64_t unit, std::int64_t blocks) {
    return std::min(channels, ceil_div(ceil_div(channels, unit), blocks) * unit);
  }
};

/// `positions`: of all samples together.
GradWeightBlocks choose_blocks(const Convolution& mirror, bool wide, double positions);

}  // namespace tconv::cpu
