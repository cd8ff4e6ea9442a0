// Which tile serves a layer and a shape: a cost model, no timing.
//
// Every legal tile is priced by what each part of a multiprocessor would need for it, in cycles:
//
//   products   16 x 8 products issued, over the rate of the tensor cores
//   shared     128-byte wavefronts: fragments read, tiles written, sums staged and read back
//   L2         weight slabs and x tiles with their halo
//   memory     outputs, and inputs once
//   latency    what a warp alone takes for its chain of steps; counts where few tiles fill the device
//
// The largest of them, times the waves of tiles, is the price; the cheapest tile wins. Rates are those
// of an H200; their ratios are near enough on other devices, and only the order of prices matters.
#pragma once

#include <vector>

#include "cuda/heuristics/row_plan.hpp"

namespace tconv::cuda {

struct DeviceLimits {
  int multiprocessors = 132;
  int shared_per_block = 227 * 1024;
  int shared_per_multiprocessor = 228 * 1024;
  bool exported = false;               // a tile is to serve every size
  bool turns = true;                   // there is workspace that x may be turned into
  double most_turned_bytes = 1 << 30;  // of workspace
};

/// How memory looks to the kernel; the same for all shapes with the same alignment.
struct Access {
  bool x_channels_last = false;
  int x_vector = 1;
  bool x_maps =
      false;  // a tensor map of 16-bit images serves: their positions follow one another, 16 bytes aligned
  bool y_rows = true;
  bool y_planes = true;  // rows of outputs follow one another
  int y_channels = 1;    // neighbouring channels of y that may be stored at once
  int y_row_vector = 1;  // and neighbouring outputs along the width, counted from where a row begins
  bool operator==(const Access&) const = default;
};

struct TileChoice {
  device::GemmConfig config;
  double cycles = 0;
};

/// All legal tiles with their prices, cheapest first.
std::vector<TileChoice> price_tiles(const Geometry& geometry, device::Math math, const RowPlan& rows,
                                    const Shape& shape, const Access& access, const DeviceLimits& limits);

/// The configuration a layer's weights are packed with: packing needs the rows, and no tile.
device::GemmConfig pack_config(const Geometry& geometry, device::Math math, const RowPlan& rows);

/// What layer and rows fix of a configuration.
device::GemmConfig layer_config(const Geometry& geometry, device::Math math, const RowPlan& rows);
/// Positions q of each dimension that have an output.
Int3 positions_of(const device::GemmConfig& config, const Shape& shape);

/// The boxes that cover the positions of a shape.
Int3 boxes_of(const device::GemmConfig& config, const Shape& shape);

}  // namespace tconv::cuda
