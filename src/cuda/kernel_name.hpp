// The names of the tensor-core kernels, for TCONV_VERBOSE, tests and timings: the family, the numbers multiplied,
// and what tells one tile from another.
#pragma once

#include <string>

#include "cuda/kernels/gemm_config.cuh"

namespace tconv::cuda {

/// "panel_gemm_tf32": of a family whatever the tile.
std::string kernel_name(const char* family, device::Math math);
std::string kernel_name(const device::GemmConfig& config);

}  // namespace tconv::cuda
