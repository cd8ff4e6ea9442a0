// Writes the source of one specialised kernel: the configuration, its tables and an entry point.
#pragma once

#include <string>

#include "cuda/heuristics/row_plan.hpp"
#include "cuda/kernels/direct_config.cuh"
#include "cuda/kernels/launch_params.cuh"

namespace tconv::cuda {

/// Entry point `forward(ForwardParams)`.
std::string gemm_source(const device::GemmConfig& config, const RowPlan& rows);
/// The same on wgmma.
std::string warpgroup_source(const device::GemmConfig& config, const RowPlan& rows);
/// Entry point `turn(TurnParams)`.
std::string turn_source(device::Math math, device::TurnLoad load);
/// The entry whose threads take so many slices at a time.
const char* turn_entry(int item_slices);
/// Entry point `find(ScaleParams)`: the scales of weights that are split into halves.
std::string weight_scales_source();
/// Entry point `pack(PackParams)`. Reads of the configuration what fixes the packed order: fragments of
/// mma.sync, or operands of wgmma where it has teams.
std::string pack_source(const device::GemmConfig& config, const RowPlan& rows, const Geometry& geometry);
/// Entry point `forward(GenericParams)`.
std::string generic_source(const Geometry& geometry, DType dtype);
/// Entry point `forward(DirectParams)`.
std::string direct_source(const device::DirectConfig& config, DType dtype);

}  // namespace tconv::cuda
