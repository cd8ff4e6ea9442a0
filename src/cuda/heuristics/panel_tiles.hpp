// Which tiles of the panel kernel could serve a layer and a shape; what each costs is panel_prices.hpp. Here a
// team turns its x into panels itself, and sums are 64 rows by many positions.
#pragma once

#include "cuda/heuristics/gemm_tiles.hpp"

namespace tconv::cuda {

/// All tiles that fit, priced, in no order; none where the layer's rows do not suit the kernel. `layer` says what
/// layer, rows and memory fix.
std::vector<TileChoice> price_panel_tiles(const device::GemmConfig& layer, const RowPlan& rows, const Shape& shape,
                                          const Access& access, const DeviceLimits& limits);

}  // namespace tconv::cuda
