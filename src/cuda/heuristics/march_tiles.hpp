// Which tile of the march kernel serves a layer and a shape, and what each costs: a cost model, no timing. The
// terms are those of warpgroup_tiles.hpp, for each slice of x.
#pragma once

#include "cuda/heuristics/gemm_tiles.hpp"

namespace tconv::cuda {

/// Whether sums of a layer are as the march kernel wants them; `rows` is a plan of its own.
bool suits_march(const Geometry& geometry, device::Math math, const RowPlan& rows);

/// All tiles that fit, cheapest first; none where the tensors do not suit the kernel.
std::vector<TileChoice> price_march_tiles(const Geometry& geometry, device::Math math, const RowPlan& rows,
                                          const Shape& shape, const Access& access, const DeviceLimits& limits);

}  // namespace tconv::cuda
