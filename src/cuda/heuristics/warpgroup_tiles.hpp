// Which tile of the warpgroup kernel serves a layer and a shape: a cost model, no timing.
//
// A tile is priced by what it takes of each part of a multiprocessor, in cycles:
//
//   tensor     products of 64 positions, all rows and eight words
//   shared     words of x read for them, weights read by the tensor core, tiles written, sums staged
//   L2         weights where they are streamed, x with its halo, outputs
//   memory     outputs with the ragged ends of their runs, x once
//   chain      what a team alone takes for a tile, from the first load to the last store
//
// Teams of one multiprocessor share the first four and hide each other's chains. Rates are those of an H200.
#pragma once

#include "cuda/heuristics/gemm_tiles.hpp"

namespace tconv::cuda {

/// Whether the warpgroup kernels are ahead of the general one, whatever the shape; `rows` is a wide plan. Of
/// halves: whether they serve at all, and sums are of so many products that they are as accurate as those of fp32.
bool suits_warpgroups(const Geometry& geometry, device::Math math, const RowPlan& rows);
/// Whether they may be, where the shape decides: panels store short sums faster.
bool may_suit_warpgroups(device::Math math, const RowPlan& rows);

/// All tiles that fit, cheapest first.
std::vector<TileChoice> price_warpgroup_tiles(const Geometry& geometry, device::Math math, const RowPlan& rows,
                                              const Shape& shape, const Access& access,
                                              const DeviceLimits& limits);

/// What a tile costs a shape.
double warpgroup_cycles(const device::GemmConfig& config, const RowPlan& rows, const Shape& shape,
                        const DeviceLimits& limits);

}  // namespace tconv::cuda
