// PyTorch's own operators, for what tconv's CUDA engine does not compute: gradients, and layers on machines it
// cannot be used on. The checks, the autograd formulas and everything above are the same.
#include "cuda_fallback.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "call_failed.hpp"
#include "new_tensor.hpp"

namespace tconv::pytorch::cuda {
namespace {

using std::int64_t;
using torch::stable::detail::from;
using torch::stable::detail::to;

bool verbose() {
  static const bool asked = [] {
    const char* value = std::getenv("TCONV_VERBOSE");
    return value != nullptr && *value != '\0' && std::string(value) != "0";
  }();
  return asked;
}

/// A line per call where TCONV_VERBOSE asks for it, like the engines' own.
void say(Pass pass, const Problem& problem, const std::string& why) {
  if (!verbose()) return;
  const Layer& layer = problem.layer;
  std::fprintf(stderr, "tconv,pytorch,%s,fallback: %s,%s,%s,%dd n%lld g%lld ci%lld co%lld\n", to_string(pass),
               why.c_str(), to_string(layer.dtype), to_string(layer.layout), layer.dims,
               static_cast<long long>(problem.batch), static_cast<long long>(layer.groups),
               static_cast<long long>(layer.in_channels), static_cast<long long>(layer.out_channels));
}

/// A warning of PyTorch's, once for each reason: whoever asked for tconv should know that it does not run.
void warn_once(const std::string& why) {
  static std::mutex mutex;
  static auto& told = *new std::set<std::string>;
  {
    const std::lock_guard lock(mutex);
    if (!told.insert(why).second) return;
  }
  const std::string text = "tconv's CUDA engine cannot be used here, so PyTorch's own operator computes: " + why;
  aoti_torch_warn("conv_transpose", __FILE__, __LINE__, text.c_str());
}

template <std::size_t size>
void call(const char* name, std::array<StableIValue, size>& stack) {
  if (torch_call_dispatcher(name, "", stack.data(), TORCH_ABI_VERSION) != TORCH_SUCCESS)
    throw CallFailed(std::string(name) + " did not work");
}

Integers integers(const Layer& layer, const Extents& extents) {
  return Integers(extents.begin(), extents.begin() + layer.dims);
}

/// aten::_convolution, the one that takes the TF32 switch as an argument.
TorchTensor convolution(const TorchTensor& input, const TorchTensor& weight, const OptionalTensor& bias,
                        const Layer& layer, bool transposed, bool allow_tf32) {
  const Integers no_output_padding(static_cast<std::size_t>(layer.dims), 0);
  std::array<StableIValue, 13> stack{from(input),
                                     from(weight),
                                     from(bias),
                                     from(integers(layer, layer.stride)),
                                     from(integers(layer, layer.padding)),
                                     from(integers(layer, layer.dilation)),
                                     from(transposed),
                                     from(transposed ? integers(layer, layer.output_padding) : no_output_padding),
                                     from(layer.groups),
                                     from(/*benchmark=*/false),
                                     from(/*deterministic=*/false),
                                     from(/*cudnn_enabled=*/true),
                                     from(allow_tf32)};
  call("aten::_convolution", stack);
  return to<TorchTensor>(stack[0]);
}

constexpr const char* no_gradients = "no gradients in the CUDA engine";

}  // namespace

TorchTensor fallback_conv_transpose(const TorchTensor& input, const TorchTensor& weight,
                                    const OptionalTensor& bias, const Problem& problem, bool allow_tf32,
                                    const std::string& why) {
  warn_once(why);
  say(Pass::forward, problem, why);
  const Layer& layer = problem.layer;
  const TorchTensor output = convolution(input, weight, bias, layer, /*transposed=*/true, allow_tf32);
  // The memory format tconv promises, which is what the fake kernels say; PyTorch's differs in a few cases.
  const bool channels_last = is_channels_last(input) || is_channels_last(weight);
  if (is_channels_last(output) == channels_last) return output;
  TorchTensor promised =
      new_activation(input, problem.batch, layer.out_channels, layer.dims, problem.output, channels_last);
  return torch::stable::copy_(promised, output);
}

TorchTensor conv_transpose_grad_input(const TorchTensor& grad_output, const TorchTensor& weight,
                                      const Integers& geometry, int64_t groups, bool allow_tf32) {
  const Problem problem = grad_input_problem(grad_output, weight, geometry, groups);
  if (problem.is_empty()) {
    TorchTensor zero = new_activation(grad_output, problem.batch, problem.layer.in_channels, problem.layer.dims,
                                      problem.input, is_channels_last(weight));
    return torch::stable::zero_(zero);
  }
  say(Pass::grad_input, problem, no_gradients);
  TorchTensor grad_input =
      convolution(grad_output, weight, std::nullopt, problem.layer, /*transposed=*/false, allow_tf32);
  // Output padding of a stride or more, which a larger dilation allows, makes a convolution see further
  // positions behind the input's last one. They are none of the layer's.
  for (int d = 0; d < problem.layer.dims; ++d)
    if (grad_input.size(2 + d) != problem.input[d])
      grad_input = torch::stable::narrow(grad_input, 2 + d, 0, problem.input[d]);
  return grad_input;
}

TorchTensor conv_transpose_grad_weight(const TorchTensor& input, const TorchTensor& grad_output,
                                       const Integers& kernel_size, const Integers& geometry, int64_t groups,
                                       bool) {
  const Problem problem = grad_weight_problem(input, grad_output, kernel_size, geometry, groups);
  const Layer& layer = problem.layer;
  if (problem.is_empty()) {
    TorchTensor zero = new_activation(input, layer.in_channels, layer.out_channels / layer.groups, layer.dims,
                                      layer.kernel, is_channels_last(input));
    return torch::stable::zero_(zero);
  }
  say(Pass::grad_weight, problem, no_gradients);
  Integers weight_sizes{layer.in_channels, layer.out_channels / layer.groups};
  weight_sizes.insert(weight_sizes.end(), kernel_size.begin(), kernel_size.end());
  const TorchTensor weight = torch::stable::new_empty(input, weight_sizes);  // only its sizes are read
  const std::array<bool, 3> output_mask{false, true, false};
  std::array<StableIValue, 11> stack{from(grad_output),
                                     from(input),
                                     from(weight),
                                     from(std::nullopt),
                                     from(integers(layer, layer.stride)),
                                     from(integers(layer, layer.padding)),
                                     from(integers(layer, layer.dilation)),
                                     from(/*transposed=*/true),
                                     from(integers(layer, layer.output_padding)),
                                     from(layer.groups),
                                     from(torch::headeronly::HeaderOnlyArrayRef<bool>(output_mask))};
  // This one takes no TF32 switch: PyTorch's own decides.
  call("aten::convolution_backward", stack);
  const auto grad_input = to<TorchTensor>(stack[0]);  // taken off the stack: all three are owned
  const auto grad_bias = to<TorchTensor>(stack[2]);
  return to<TorchTensor>(stack[1]);
}

TorchTensor conv_transpose_grad_bias(const TorchTensor& grad_output, const TorchTensor&, const Integers&,
                                     int64_t) {
  Integers dims{0};
  for (int64_t dim = 2; dim < grad_output.dim(); ++dim) dims.push_back(dim);
  return torch::stable::sum(grad_output, torch::headeronly::IntHeaderOnlyArrayRef(dims));
}

}  // namespace tconv::pytorch::cuda
