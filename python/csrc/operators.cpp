// The operators' schemas and their kernels, registered through the Stable ABI: this library is one binary
// for every PyTorch from 2.10 on and for every version of Python. Autograd, fake kernels, autocast and
// batching rules are registered in python/tconv.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "kernels.hpp"
#include "layer_table.hpp"
#include "new_tensor.hpp"

// `geometry` is stride, padding, output_padding and dilation, one after the other: see problem.hpp.
//
// The operators with an underscore are the same three for eager calls, with a layer's number in the place of
// its parameters, and all gradients of a layer in one call. They are called where autograd has been seen to,
// never appear in a graph, and need none of the registrations the others have.
STABLE_TORCH_LIBRARY(tconv, library) {
  library.def(
      "conv_transpose(Tensor input, Tensor weight, Tensor? bias, SymInt[] geometry, SymInt groups, "
      "bool allow_tf32) -> Tensor");
  library.def(
      "conv_transpose_grad_input(Tensor grad_output, Tensor weight, SymInt[] geometry, SymInt groups, "
      "bool allow_tf32) -> Tensor");
  library.def(
      "conv_transpose_grad_weight(Tensor input, Tensor grad_output, SymInt[] kernel_size, SymInt[] geometry, "
      "SymInt groups, bool allow_tf32) -> Tensor");

  library.def("_layer_number(int[] geometry, int groups, bool allow_tf32) -> int");
  library.def("_conv_transpose(Tensor input, Tensor weight, Tensor? bias, int layer) -> Tensor");
  library.def("_conv_transpose_grad_input(Tensor grad_output, Tensor weight, int layer) -> Tensor");
  library.def(
      "_conv_transpose_grad_weight(Tensor input, Tensor grad_output, int[] kernel_size, int layer) -> Tensor");
  library.def(
      "_conv_transpose_backward(Tensor grad_output, Tensor input, Tensor weight, bool needs_input, "
      "bool needs_weight, bool needs_bias, int layer) -> (Tensor?, Tensor?, Tensor?)");

  // For modules on a GPU, whose packed weights are kept: see packed_weights.hpp.
  library.def(
      "_conv_transpose_kept(Tensor input, Tensor weight, Tensor? bias, int layer, int ticket, bool frozen) "
      "-> Tensor");

  // The layer where the CUDA engine cannot be used; its kernel is python/tconv/_pytorch.py's.
  library.def(
      "_conv_transpose_by_pytorch(Tensor input, Tensor weight, Tensor? bias, int[] geometry, int groups, "
      "bool allow_tf32) -> Tensor");
}

namespace {

namespace cpu = tconv::pytorch::cpu;
namespace cuda = tconv::pytorch::cuda;
using tconv::pytorch::Integers;
using tconv::pytorch::layer_of;
using tconv::pytorch::OptionalTensor;
using tconv::pytorch::TorchTensor;

std::int64_t layer_number(const Integers& geometry, std::int64_t groups, bool allow_tf32) {
  return tconv::pytorch::number_of({.geometry = geometry, .groups = groups, .allow_tf32 = allow_tf32});
}

/// A kernel of the operators above as one of those with a number.
template <auto kernel>
TorchTensor forward(const TorchTensor& input, const TorchTensor& weight, const OptionalTensor& bias,
                    std::int64_t number) {
  const auto& layer = layer_of(number);
  return kernel(input, weight, bias, layer.geometry, layer.groups, layer.allow_tf32);
}

TorchTensor grad_input(const TorchTensor& grad_output, const TorchTensor& weight, std::int64_t number) {
  const auto& layer = layer_of(number);
  return cpu::conv_transpose_grad_input(grad_output, weight, layer.geometry, layer.groups, layer.allow_tf32);
}

TorchTensor grad_weight(const TorchTensor& input, const TorchTensor& grad_output, const Integers& kernel_size,
                        std::int64_t number) {
  const auto& layer = layer_of(number);
  return cpu::conv_transpose_grad_weight(input, grad_output, kernel_size, layer.geometry, layer.groups,
                                         layer.allow_tf32);
}

/// A gradient in the memory format of PyTorch's: that of the layer's output, whatever the format of grad_output.
TorchTensor in_format(const TorchTensor& gradient, bool channels_last) {
  if (gradient.dim() == 3 || tconv::pytorch::is_channels_last(gradient) == channels_last) return gradient;
  const auto sizes = gradient.sizes();
  tconv::Extents spatial{1, 1, 1};
  for (std::size_t d = 2; d < sizes.size(); ++d) spatial[d - 2] = sizes[d];
  TorchTensor result = tconv::pytorch::new_activation(gradient, sizes[0], sizes[1],
                                                      static_cast<int>(sizes.size()) - 2, spatial, channels_last);
  return torch::stable::copy_(result, gradient);
}

std::tuple<OptionalTensor, OptionalTensor, OptionalTensor> backward(const TorchTensor& grad_output,
                                                                    const TorchTensor& input,
                                                                    const TorchTensor& weight, bool needs_input,
                                                                    bool needs_weight, bool needs_bias,
                                                                    std::int64_t number) {
  const auto sizes = weight.sizes();
  const bool last = tconv::pytorch::is_channels_last(input) || tconv::pytorch::is_channels_last(weight);
  OptionalTensor for_input, for_weight, for_bias;
  if (needs_input) for_input = in_format(grad_input(grad_output, weight, number), last);
  if (needs_weight)
    for_weight =
        in_format(grad_weight(input, grad_output, Integers(sizes.begin() + 2, sizes.end()), number), last);
  if (needs_bias) {
    const auto& layer = layer_of(number);
    for_bias = cpu::conv_transpose_grad_bias(grad_output, weight, layer.geometry, layer.groups);
  }
  return {for_input, for_weight, for_bias};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(tconv, CompositeExplicitAutograd, library) {
  library.impl("_layer_number", TORCH_BOX(&layer_number));
}

STABLE_TORCH_LIBRARY_IMPL(tconv, CPU, library) {
  library.impl("conv_transpose", TORCH_BOX(&cpu::conv_transpose));
  library.impl("conv_transpose_grad_input", TORCH_BOX(&cpu::conv_transpose_grad_input));
  library.impl("conv_transpose_grad_weight", TORCH_BOX(&cpu::conv_transpose_grad_weight));
  library.impl("_conv_transpose", TORCH_BOX(&forward<cpu::conv_transpose>));
  library.impl("_conv_transpose_grad_input", TORCH_BOX(&grad_input));
  library.impl("_conv_transpose_grad_weight", TORCH_BOX(&grad_weight));
  library.impl("_conv_transpose_backward", TORCH_BOX(&backward));
}

// The gradients of CUDA tensors are PyTorch's own operators: python/tconv/_pytorch.py.
STABLE_TORCH_LIBRARY_IMPL(tconv, CUDA, library) {
  library.impl("conv_transpose", TORCH_BOX(&cuda::conv_transpose));
  library.impl("_conv_transpose", TORCH_BOX(&forward<cuda::conv_transpose>));
  library.impl("_conv_transpose_kept", TORCH_BOX(&cuda::conv_transpose_kept));
}
