#include "cuda/tile_kernels.hpp"

#include <array>
#include <cstring>
#include <optional>

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

namespace {

/// None where the driver refuses it. Of a device that is not here, the map is the description itself.
std::optional<device::TensorMap> tensor_map(const device::MapDescription& description,
                                            const DeviceProperties& device) {
  device::TensorMap map{};
  static_assert(sizeof description <= sizeof map);
  if (device.record) {
    if (!device.record->takes_maps()) return std::nullopt;
    std::memcpy(&map, &description, sizeof description);
    return map;
  }
  // As cuda.h numbers them.
  constexpr int f16 = 6, bf16 = 9, not_interleaved = 0, swizzled_128 = 3, promoted_256 = 3, filled_with_zeros = 0;
  const unsigned copied[4] = {description.copied[0], description.copied[1], 1, 1}, steps[4] = {1, 1, 1, 1};
  const auto sizes = std::to_array<std::uint64_t>(
      {description.sizes[0], description.sizes[1], description.sizes[2], description.sizes[3]});
  const auto strides =
      std::to_array<std::uint64_t>({description.strides[0], description.strides[1], description.strides[2]});
  const CUresult result = driver().cuTensorMapEncodeTiled(
      &map, description.bf16 ? bf16 : f16, 4, const_cast<void*>(description.x), sizes.data(), strides.data(),
      copied, steps, not_interleaved, swizzled_128, promoted_256, filled_with_zeros);
  if (result != 0) return std::nullopt;
  return map;
}

}  // namespace

bool launch_forward(const Kernel& kernel, const device::GemmConfig& c, const device::ForwardParams& params,
                    const DeviceProperties& device, void* stream) {
  const device::Launch launch = device::launch_of(c, params, device.multiprocessors);
  if (!c.mapped) {
    kernel.launch(launch, params, stream);
    return true;
  }
  const auto map = tensor_map(device::map_description(c, params), device);
  if (!map) return false;
  device::MappedParams mapped{params, *map};
  kernel.launch(launch, mapped, stream);
  return true;
}

}  // namespace tconv::cuda
