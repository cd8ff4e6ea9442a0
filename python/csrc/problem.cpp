#include "problem.hpp"

namespace tconv::pytorch {
namespace {

using std::int64_t;
using std::to_string;
using Integers = std::vector<int64_t>;

[[noreturn]] void refuse(const std::string& message) {
  throw InvalidArgument(message);
}

std::string text_of(const Integers& values) {
  std::string text = "[";
  for (const int64_t value : values) text += (text.size() > 1 ? ", " : "") + to_string(value);
  return text + "]";
}

void check_same_kind(const char* name, const TorchTensor& tensor, const char* reference_name,
                     const TorchTensor& reference) {
  if (tensor.device() != reference.device())
    refuse(std::string("Expected all tensors to be on the same device, but ") + name + " and " + reference_name +
           " are not");
  if (dtype_of(tensor) != dtype_of(reference))
    refuse(std::string("expected ") + name + " and " + reference_name + " to have the same dtype, but " + name +
           " is " + to_string(dtype_of(tensor)) + " and " + reference_name + " is " +
           to_string(dtype_of(reference)));
}

/// The dims the geometry is for.
int dims_of(const Integers& geometry) {
  if (geometry.size() != 4 && geometry.size() != 8 && geometry.size() != 12)
    refuse("geometry must hold stride, padding, output_padding and dilation of 1, 2 or 3 dimensions, but got " +
           text_of(geometry));
  return static_cast<int>(geometry.size() / 4);
}

void check_rank(const char* name, const TorchTensor& tensor, int dims) {
  if (tensor.dim() != dims + 2)
    refuse("Expected " + to_string(dims + 2) + "-dimensional " + name + " for a transposed convolution in " +
           to_string(dims) + " dimensions, but got " + name + " of size " + sizes_text(tensor));
}

/// A layer with everything geometry and groups say.
Layer layer_of(const Integers& geometry, int64_t groups) {
  Layer layer;
  layer.dims = dims_of(geometry);
  layer.groups = groups;
  const int dims = layer.dims;
  for (int d = 0; d < dims; ++d) {
    layer.stride[d] = geometry[d];
    layer.padding[d] = geometry[dims + d];
    layer.output_padding[d] = geometry[2 * dims + d];
    layer.dilation[d] = geometry[3 * dims + d];
    if (layer.stride[d] <= 0)
      refuse("non-positive stride is not supported, but got stride=" + to_string(geometry[d]));
    if (layer.padding[d] < 0)
      refuse("negative padding is not supported, but got padding=" + to_string(layer.padding[d]));
    if (layer.output_padding[d] < 0)
      refuse("negative output_padding is not supported, but got output_padding=" +
             to_string(layer.output_padding[d]));
    if (layer.dilation[d] <= 0)
      refuse("dilation should be greater than zero, but got dilation=" + to_string(layer.dilation[d]));
    if (layer.output_padding[d] >= std::max(layer.stride[d], layer.dilation[d]))
      refuse("output padding must be smaller than either stride or dilation, but got output_padding=" +
             to_string(layer.output_padding[d]) + ", stride=" + to_string(layer.stride[d]) +
             ", dilation=" + to_string(layer.dilation[d]));
  }
  if (groups <= 0) refuse("non-positive groups is not supported, but got groups=" + to_string(groups));
  return layer;
}

void set_weight(Layer& layer, const TorchTensor& weight) {
  check_rank("weight", weight, layer.dims);
  const auto sizes = weight.sizes();
  for (const int64_t size : sizes)
    if (size <= 0) refuse("non-empty weight tensor expected, but got weight of size " + sizes_text(weight));
  if (sizes[0] % layer.groups != 0)
    refuse("Given groups=" + to_string(layer.groups) + ", expected weight to be divisible by " +
           to_string(layer.groups) + " at dimension 0, but got weight of size " + sizes_text(weight) + " instead");
  layer.in_channels = sizes[0];
  if (__builtin_mul_overflow(sizes[1], layer.groups, &layer.out_channels))
    refuse("groups=" + to_string(layer.groups) + " is too large for weight of size " + sizes_text(weight));
  for (int d = 0; d < layer.dims; ++d) layer.kernel[d] = sizes[2 + d];
}

void check_channels(const char* name, const TorchTensor& tensor, int64_t channels, const std::string& given) {
  if (tensor.size(1) != channels)
    refuse("Given transposed=1, " + given + ", expected " + name + sizes_text(tensor) + " to have " +
           to_string(channels) + " channels, but got " + to_string(tensor.size(1)) + " channels instead");
}

Extents spatial_of(const TorchTensor& tensor, int dims) {
  Extents extents{1, 1, 1};
  for (int d = 0; d < dims; ++d) extents[d] = tensor.size(2 + d);
  return extents;
}

/// The size of the output. The library refuses one without elements; PyTorch does not.
Extents output_of(const Layer& layer, const Extents& input) {
  Extents output{1, 1, 1};
  bool empty = false;
  for (int d = 0; d < layer.dims; ++d) {
    int64_t inputs = 0, taps = 0, size = 0;
    const bool overflows = __builtin_mul_overflow(input[d] - 1, layer.stride[d], &inputs) ||
                           __builtin_mul_overflow(layer.dilation[d], layer.kernel[d] - 1, &taps) ||
                           __builtin_add_overflow(inputs, taps, &size) ||
                           __builtin_add_overflow(size, layer.output_padding[d] + 1, &size) ||
                           __builtin_sub_overflow(size, layer.padding[d], &size) ||
                           __builtin_sub_overflow(size, layer.padding[d], &size);
    if (overflows || input[d] <= 0 || size < 0) return output_size(layer, input);  // which says what is wrong
    empty = empty || size == 0;
    output[d] = size;
  }
  return empty ? output : output_size(layer, input);
}

void choose_layout(Layer& layer, const TorchTensor& activation) {
  layer.dtype = dtype_of(activation);
  layer.layout = is_channels_last(activation) ? Layout::channels_last : Layout::channels_first;
}

}  // namespace

bool Problem::is_empty() const {
  return batch == 0 || output[0] == 0 || output[1] == 0 || output[2] == 0;
}

Problem forward_problem(const TorchTensor& input, const TorchTensor& weight,
                        const std::optional<TorchTensor>& bias, const Integers& geometry, int64_t groups) {
  check_same_kind("weight", weight, "input", input);
  Problem problem{.layer = layer_of(geometry, groups)};
  Layer& layer = problem.layer;
  check_rank("input", input, layer.dims);
  set_weight(layer, weight);
  check_channels("input", input, layer.in_channels, "weight of size " + sizes_text(weight));
  if (bias) {
    check_same_kind("bias", *bias, "input", input);
    if (bias->dim() != 1 || bias->size(0) != layer.out_channels)
      refuse("Given transposed=1, weight of size " + sizes_text(weight) +
             ", expected bias to be 1-dimensional with " + to_string(layer.out_channels) +
             " elements, but got bias of size " + sizes_text(*bias) + " instead");
    layer.bias = true;
  }
  choose_layout(layer, input);
  problem.batch = input.size(0);
  problem.input = spatial_of(input, layer.dims);
  problem.output = output_of(layer, problem.input);
  return problem;
}

Problem grad_input_problem(const TorchTensor& grad_output, const TorchTensor& weight, const Integers& geometry,
                           int64_t groups) {
  check_same_kind("weight", weight, "grad_output", grad_output);
  Problem problem{.layer = layer_of(geometry, groups)};
  Layer& layer = problem.layer;
  check_rank("grad_output", grad_output, layer.dims);
  set_weight(layer, weight);
  check_channels("grad_output", grad_output, layer.out_channels, "weight of size " + sizes_text(weight));
  choose_layout(layer, grad_output);
  problem.batch = grad_output.size(0);
  problem.output = spatial_of(grad_output, layer.dims);
  for (int d = 0; d < layer.dims; ++d) {
    const int64_t reach = problem.output[d] - 1 - layer.output_padding[d] + 2 * layer.padding[d] -
                          layer.dilation[d] * (layer.kernel[d] - 1);
    if (reach < 0 || reach % layer.stride[d] != 0)
      refuse("grad_output of size " + sizes_text(grad_output) +
             " is not the output of a transposed convolution with weight of size " + sizes_text(weight) +
             ", stride, padding, output_padding and dilation " + text_of(geometry));
    problem.input[d] = reach / layer.stride[d] + 1;
  }
  return problem;
}

Problem grad_weight_problem(const TorchTensor& input, const TorchTensor& grad_output, const Integers& kernel_size,
                            const Integers& geometry, int64_t groups) {
  check_same_kind("grad_output", grad_output, "input", input);
  Problem problem{.layer = layer_of(geometry, groups)};
  Layer& layer = problem.layer;
  check_rank("input", input, layer.dims);
  check_rank("grad_output", grad_output, layer.dims);
  if (kernel_size.size() != static_cast<std::size_t>(layer.dims))
    refuse("expected kernel_size to have " + to_string(layer.dims) + " values, but got " + text_of(kernel_size));
  for (int d = 0; d < layer.dims; ++d) layer.kernel[d] = kernel_size[d];
  layer.in_channels = input.size(1);
  layer.out_channels = grad_output.size(1);
  choose_layout(layer, input);
  problem.batch = input.size(0);
  problem.input = spatial_of(input, layer.dims);
  problem.output = output_of(layer, problem.input);
  if (grad_output.size(0) != problem.batch || spatial_of(grad_output, layer.dims) != problem.output)
    refuse("grad_output of size " + sizes_text(grad_output) + " is not the output for input of size " +
           sizes_text(input) + " with kernel_size " + text_of(kernel_size) +
           " and stride, padding, output_padding and dilation " + text_of(geometry));
  return problem;
}

}  // namespace tconv::pytorch
