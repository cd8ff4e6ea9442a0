// New tensors in PyTorch's memory formats: from PyTorch's allocators, large ones on the CPU in kept_memory.hpp's
// blocks.
#pragma once

#include "tensor_view.hpp"

namespace tconv::pytorch {

/// An uninitialised tensor [outer, channels, spatial…] with the dtype of `like`, on its device.
TorchTensor new_activation(const TorchTensor& like, std::int64_t outer, std::int64_t channels, int dims,
                           const Extents& spatial, bool channels_last);

/// An uninitialised vector with the dtype of `like`, on its device.
TorchTensor new_vector(const TorchTensor& like, std::int64_t elements);

/// Uninitialised memory on the device of `like`.
TorchTensor new_bytes(const TorchTensor& like, std::int64_t bytes);

}  // namespace tconv::pytorch
