// The CUDA engine: layers on NVIDIA GPUs, sm_80 and newer, with kernels compiled for each layer.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.hpp"

namespace tconv::cuda {

struct DeviceProperties;

/// Throws Unsupported where there is no driver or the GPU is too old.
std::unique_ptr<EnginePlan> make_plan(const Layer& layer, int device);
/// The same on a device that is known, or described (runtime/targets.hpp); it must outlive the plan.
std::unique_ptr<EnginePlan> make_plan(const Layer& layer, const DeviceProperties& device);

/// What serves dense, aligned tensors of a shape.
struct DenseKernel {
  std::string name;
  bool tiled = false;   // a tensor-core kernel, whose tile was chosen by price
  bool scaled = false;  // one that multiplies scaled fp16 numbers
};
DenseKernel dense_kernel(const Layer& layer, const Shape& shape, const DeviceProperties& device);

}  // namespace tconv::cuda
