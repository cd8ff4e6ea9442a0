// CPU tensors: tconv's CPU engine on PyTorch's threads.
#include <torch/csrc/stable/ops.h>

#include "executor.hpp"
#include "kernels.hpp"
#include "new_tensor.hpp"
#include "prepared.hpp"

namespace tconv::pytorch::cpu {
namespace {

using std::int64_t;

/// Calls run(options) with the threads and the workspace a pass can use.
template <class Run>
void with_resources(const Binding& binding, Pass pass, const TorchTensor& like, const Run& run) {
  TorchExecutor executor;
  RunOptions options{.executor = &executor};
  options.workspace_bytes = binding.workspace_bytes(pass, executor.concurrency());

  // Small layers run in about a microsecond, which is what PyTorch's allocator takes.
  alignas(64) std::byte on_stack[16 * 1024];
  if (options.workspace_bytes <= sizeof(on_stack)) {
    options.workspace = on_stack;
    run(options);
    return;
  }
  const TorchTensor workspace = new_bytes(like, static_cast<int64_t>(options.workspace_bytes));
  options.workspace = workspace.mutable_data_ptr();
  run(options);
}

}  // namespace

// On the CPU fp32 is fp32: the precision changes nothing, and would only make two plans of one.

TorchTensor conv_transpose(const TorchTensor& input, const TorchTensor& weight, const OptionalTensor& bias,
                           const Integers& geometry, int64_t groups, bool) {
  const auto prepared = prepare_forward(input, weight, bias, geometry, groups, Precision::fp32);
  const Problem& problem = prepared->problem;
  const Binding& binding = prepared->binding;
  const TorchTensor output = new_activation(input, problem.batch, problem.layer.out_channels, problem.layer.dims,
                                            problem.output, is_channels_last(input) || is_channels_last(weight));
  if (problem.is_empty()) return output;
  const ConstTensor bias_view = bias ? view(*bias) : ConstTensor();
  with_resources(binding, Pass::forward, input, [&](const RunOptions& options) {
    binding.forward(view(input), view(weight), bias ? &bias_view : nullptr, mutable_view(output), options);
  });
  return output;
}

TorchTensor conv_transpose_grad_input(const TorchTensor& grad_output, const TorchTensor& weight,
                                      const Integers& geometry, int64_t groups, bool) {
  const auto prepared = prepare_grad_input(grad_output, weight, geometry, groups, Precision::fp32);
  const Problem& problem = prepared->problem;
  const Binding& binding = prepared->binding;
  TorchTensor grad_input =
      new_activation(grad_output, problem.batch, problem.layer.in_channels, problem.layer.dims, problem.input,
                     is_channels_last(grad_output) || is_channels_last(weight));
  if (problem.is_empty()) return torch::stable::zero_(grad_input);
  with_resources(binding, Pass::grad_input, grad_output, [&](const RunOptions& options) {
    binding.grad_input(view(grad_output), view(weight), mutable_view(grad_input), options);
  });
  return grad_input;
}

TorchTensor conv_transpose_grad_weight(const TorchTensor& input, const TorchTensor& grad_output,
                                       const Integers& kernel_size, const Integers& geometry, int64_t groups,
                                       bool) {
  const auto prepared = prepare_grad_weight(input, grad_output, kernel_size, geometry, groups, Precision::fp32);
  const Problem& problem = prepared->problem;
  const Binding& binding = prepared->binding;
  const Layer& layer = problem.layer;
  TorchTensor grad_weight = new_activation(input, layer.in_channels, layer.out_channels / layer.groups, layer.dims,
                                           layer.kernel, is_channels_last(input) || is_channels_last(grad_output));
  if (problem.is_empty()) return torch::stable::zero_(grad_weight);
  with_resources(binding, Pass::grad_weight, input, [&](const RunOptions& options) {
    binding.grad_weight(view(input), view(grad_output), mutable_view(grad_weight), options);
  });
  return grad_weight;
}

TorchTensor conv_transpose_grad_bias(const TorchTensor& grad_output, const TorchTensor& weight,
                                     const Integers& geometry, int64_t groups) {
  const auto prepared = prepare_grad_input(grad_output, weight, geometry, groups, Precision::fp32);
  const Problem& problem = prepared->problem;
  const Binding& binding = prepared->binding;
  TorchTensor grad_bias = new_vector(grad_output, problem.layer.out_channels);
  if (problem.is_empty()) return torch::stable::zero_(grad_bias);
  with_resources(binding, Pass::grad_bias, grad_output, [&](const RunOptions& options) {
    binding.grad_bias(view(grad_output), mutable_view(grad_bias), options);
  });
  return grad_bias;
}

}  // namespace tconv::pytorch::cpu
