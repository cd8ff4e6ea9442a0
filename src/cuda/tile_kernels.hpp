// The kernels that a tile is run by: what to compile and how to load it.
#pragma once

#include "cuda/heuristics/gemm_tiles.hpp"
#include "cuda/runtime/kernel.hpp"

namespace tconv::cuda {

KernelRequest forward_request(const device::GemmConfig& config, const RowPlan& rows);
/// Of a tile whose x is turned before.
KernelRequest turn_request(const device::GemmConfig& config, const Access& access, int item_slices);

}  // namespace tconv::cuda
