// What PyTorch's own operator computes on CUDA tensors.
#pragma once

#include "kernels.hpp"
#include "problem.hpp"

namespace tconv::pytorch::cuda {

/// The layer by PyTorch's operator. Says why, once, in a warning.
TorchTensor fallback_conv_transpose(const TorchTensor& input, const TorchTensor& weight,
                                    const OptionalTensor& bias, const Integers& geometry, const Problem& problem,
                                    bool allow_tf32, const std::string& why);

}  // namespace tconv::pytorch::cuda
