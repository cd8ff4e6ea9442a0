// The CUDA engine: layers on NVIDIA GPUs, sm_80 and newer, with kernels compiled for each layer.
#pragma once

#include <memory>

#include "engine/engine.hpp"

namespace tconv::cuda {

struct DeviceProperties;

/// Throws Unsupported where there is no driver or the GPU is too old.
std::unique_ptr<EnginePlan> make_plan(const Layer& layer, int device);
/// The same on a device that is known, or described (runtime/targets.hpp); it must outlive the plan.
std::unique_ptr<EnginePlan> make_plan(const Layer& layer, const DeviceProperties& device);

}  // namespace tconv::cuda
