// The kernels that a tile is run by: what to compile, how to load it, and its launch.
#pragma once

#include "cuda/heuristics/gemm_tiles.hpp"
#include "cuda/kernels/launch_params.cuh"
#include "cuda/runtime/kernel.hpp"

namespace tconv::cuda {

KernelRequest forward_request(const device::GemmConfig& config, const RowPlan& rows);
/// Of a tile whose x is turned before.
KernelRequest turn_request(const device::GemmConfig& config, const Access& access, int item_slices);

/// Begins a tile's kernel; where x is turned before, behind that. False, and nothing was done, if x is to come by
/// a tensor map that the driver refuses.
[[nodiscard]] bool launch_forward(const Kernel& kernel, const device::GemmConfig& config,
                                  const device::ForwardParams& params, const DeviceProperties& device,
                                  void* stream);

}  // namespace tconv::cuda
