// The operators' kernels: one set for each device tconv's operators take tensors of.
//
//   conv_transpose              T: y  = Σ x·w + bias
//   conv_transpose_grad_input   C: gx = Σ gy·w, the adjoint of T in x
//   conv_transpose_grad_weight  W: gw = Σ x·gy, the adjoint of T in w
//   conv_transpose_grad_bias    gb = Σ gy, with the weight for the layer's sizes
//
// CUDA has the first only: the gradients there are PyTorch's own operators (python/tconv/_pytorch.py).
#pragma once

#include <optional>
#include <vector>

#include "tensor_view.hpp"

namespace tconv::pytorch {

using OptionalTensor = std::optional<TorchTensor>;
using Integers = std::vector<std::int64_t>;

namespace cpu {
TorchTensor conv_transpose(const TorchTensor& input, const TorchTensor& weight, const OptionalTensor& bias,
                           const Integers& geometry, std::int64_t groups, bool allow_tf32);
TorchTensor conv_transpose_grad_input(const TorchTensor& grad_output, const TorchTensor& weight,
                                      const Integers& geometry, std::int64_t groups, bool allow_tf32);
TorchTensor conv_transpose_grad_weight(const TorchTensor& input, const TorchTensor& grad_output,
                                       const Integers& kernel_size, const Integers& geometry, std::int64_t groups,
                                       bool allow_tf32);
TorchTensor conv_transpose_grad_bias(const TorchTensor& grad_output, const TorchTensor& weight,
                                     const Integers& geometry, std::int64_t groups);
}  // namespace cpu

namespace cuda {
TorchTensor conv_transpose(const TorchTensor& input, const TorchTensor& weight, const OptionalTensor& bias,
                           const Integers& geometry, std::int64_t groups, bool allow_tf32);
/// The same for a module's weight, whose packing is kept under a ticket: see packed_weights.hpp. `number` is
/// the layer's, see layer_table.hpp.
TorchTensor conv_transpose_kept(const TorchTensor& input, const TorchTensor& weight, const OptionalTensor& bias,
                                std::int64_t number, std::int64_t ticket, bool frozen);
}  // namespace cuda

}  // namespace tconv::pytorch
