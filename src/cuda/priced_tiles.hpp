// Which kernel serves a layer, and what the tiles that it was chosen among are priced at: for people who ask why.
// Needs no GPU.
#pragma once

#include <string>
#include <vector>

#include "cuda/runtime/driver.hpp"
#include "layer/layer.hpp"

namespace tconv::cuda {

struct PricedTile {
  std::string kernel;  // its name
  double cycles = 0;   // that the cost model says one call takes
};

struct PricedTiles {
  Shape shape;                    // that prices are of: the one asked for, or one that stands for its class
  std::string chosen;             // the kernel that serves dense tensors
  std::vector<PricedTile> tiles;  // the cheapest first, each name once; none where the layer alone decides
};

PricedTiles priced_tiles(const Layer& layer, std::int64_t batch, const Extents& input,
                         const DeviceProperties& device);

}  // namespace tconv::cuda
