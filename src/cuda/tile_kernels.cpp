#include "cuda/tile_kernels.hpp"

#include "cuda/codegen.hpp"
#include "cuda/kernels/launch_rules.cuh"
#include "cuda/kernels/sizes/block.cuh"
#include "cuda/kernels/sizes/general.cuh"

namespace tconv::cuda {

KernelRequest forward_request(const device::GemmConfig& c, const RowPlan& rows) {
  return {c.teams ? warpgroup_source(c, rows) : gemm_source(c, rows), "forward",
          c.teams ? device::team_shared_bytes(c) : device::shared_bytes(c)};
}

KernelRequest turn_request(const device::GemmConfig& c, const Access& access, int item_slices) {
  const bool vectors = access.x_channels_last && access.x_vector == 4;
  return {turn_source(c.math, device::turn_load(c, vectors)), turn_entry(item_slices),
          device::turn_shared_bytes(c.math)};
}

}  // namespace tconv::cuda
