// PyTorch's CUDA streams. The functions that know them are in PyTorch's CUDA library, which a PyTorch for CPUs
// does not have: they are looked up when the first CUDA tensor comes, and this library loads without them.
#pragma once

#include <cstdint>
#include <optional>

namespace tconv::pytorch::cuda {

/// The stream PyTorch's operators on a device are to be launched on; nothing where PyTorch does not say.
std::optional<void*> current_stream(std::int32_t device);

/// Whether what is launched on a stream becomes part of a graph instead of running. Where that cannot be
/// known it is said to be so.
bool is_capturing(void* stream);

/// Waits for everything launched on a stream.
void synchronize(void* stream, std::int32_t device);

}  // namespace tconv::pytorch::cuda
