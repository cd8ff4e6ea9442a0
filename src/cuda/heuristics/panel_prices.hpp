// What a tile of the panel kernel costs a shape, in cycles: see warpgroup_tiles.hpp.
#pragma once

#include "cuda/heuristics/gemm_tiles.hpp"

namespace tconv::cuda {

/// Columns of all products of a tile.
inline int panel_positions(const device::GemmConfig& config) {
  return config.panel_columns * config.position_tiles;
}

/// What x takes that is turned for a tile.
double turned_panel_bytes(const device::GemmConfig& config, const Shape& shape);

double panel_cycles(const device::GemmConfig& config, const RowPlan& rows, const Shape& shape,
                    const DeviceLimits& limits);

}  // namespace tconv::cuda
