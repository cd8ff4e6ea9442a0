// Kernels before they are needed: which ones a layer may ask for on a device that need not be here, and their
// code in the disk cache, so that a machine without NVRTC runs from the cache alone.
#pragma once

#include <string>
#include <vector>

#include "cuda/runtime/kernel.hpp"
#include "layer/layer.hpp"

namespace tconv::cuda {

/// Every kernel the engine asks for when it runs `layer`, the weight's packing included, on
///   - dense inputs of this size,
///   - inputs whose rows are a little longer, with each alignment a row can have,
///   - views that begin at any element,
///   - views with any other strides.
/// Found by planning and running the layer on a device where nothing is launched: the engine itself chooses.
std::vector<KernelRequest> kernels_of(const Layer& layer, std::int64_t batch, const Extents& input,
                                      const DeviceProperties& device);

enum class Kept { was_there, compiled };

/// Makes sure that the disk cache holds the code of a kernel. Throws where it cannot be compiled or kept.
Kept keep_kernel(const KernelRequest& request, const std::string& architecture);

/// Whether the disk cache holds it, undamaged.
bool is_kept(const KernelRequest& request, const std::string& architecture);

}  // namespace tconv::cuda
