// PyTorch's tensors as tconv sees them: views of memory with sizes and strides.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include "tconv/tconv.hpp"

namespace tconv::pytorch {

using TorchTensor = torch::stable::Tensor;

/// The dtype, or a refusal where no engine computes with it.
DType dtype_of(const TorchTensor& tensor);

/// A view of memory that is only read. Tensors PyTorch would copy on write stay uncopied.
ConstTensor view(const TorchTensor& tensor);
Tensor mutable_view(const TorchTensor& tensor);

/// Whether PyTorch takes a tensor for channels_last (2D) or channels_last_3d, by its strides: the rule
/// by which its own convolutions choose the memory format of their output. Never true in 1D.
bool is_channels_last(const TorchTensor& tensor);

/// "[1, 8, 16]", as PyTorch writes sizes in messages.
std::string sizes_text(const TorchTensor& tensor);

}  // namespace tconv::pytorch
