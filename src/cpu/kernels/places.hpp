// Transposes between a tensor and a tile whose rows lie at listed places: one call moves what a sample has at many
// channels and positions, and all phases of them, however they are scattered over the tile.
#pragma once

#include <cstdint>

#include "tconv/tconv.hpp"

namespace tconv::cpu {

/// A row of the tile, and the element of the tensor that its first element is.
struct Place {
  std::int64_t tensor;
  std::int64_t tile;
};

/// Elements r · tensor_step + places[j].tensor + i · stride of a tensor are elements
/// (r · tile_step + places[j].tile) · tile_pitch + i of a tile, for r < repeats, j < place_count, i < count.
struct Transposition {
  const Place* places;  // neighbours in the tensor are moved in vectors where they follow each other
  std::int64_t place_count;
  std::int64_t stride;
  std::int64_t count;
  std::int64_t repeats = 1;
  std::int64_t tensor_step = 0;
  std::int64_t tile_step = 0;
  std::int64_t tile_pitch = 1;
};

template <class Compute>
struct PlaceKernels {
  void (*load)(const Transposition& t, DType dtype, const void* tensor, Compute* tile);
  void (*store)(const Transposition& t, DType dtype, const Compute* tile, void* tensor);
};

template <class Compute>
const PlaceKernels<Compute>& place_kernels();

}  // namespace tconv::cpu
