#include "layer/layer.hpp"

#include <algorithm>
#include <limits>

namespace tconv {
namespace {

using std::int64_t;
using std::to_string;

[[noreturn]] void refuse(const std::string& message) {
  throw InvalidArgument(message);
}

std::string in_dimension(int dim) {
  return " in dimension " + to_string(dim);
}

// Bytes of the largest tensor must stay addressable; 16 bytes an element leaves room for any dtype.
constexpr int64_t max_elements = std::numeric_limits<int64_t>::max() / 16;

/// a·b, or false where the product of non-negative factors exceeds max_elements.
bool multiply(int64_t a, int64_t b, int64_t& product) {
  return !__builtin_mul_overflow(a, b, &product) && product <= max_elements;
}

void check_positive(const char* name, const Layer& layer, const Extents& values) {
  for (int d = 0; d < layer.dims; ++d)
    if (values[d] <= 0)
      refuse(std::string(name) + " must be positive, got " + to_string(values[d]) + in_dimension(d));
}

void check_non_negative(const char* name, const Layer& layer, const Extents& values) {
  for (int d = 0; d < layer.dims; ++d)
    if (values[d] < 0)
      refuse(std::string(name) + " must not be negative, got " + to_string(values[d]) + in_dimension(d));
}

void check_channels(const char* name, int64_t channels, int64_t groups) {
  if (channels <= 0) refuse(std::string(name) + " must be positive, got " + to_string(channels));
  if (channels % groups != 0)
    refuse(std::string(name) + " must be divisible by groups, got " + to_string(channels) + " channels in " +
           to_string(groups) + " groups");
}

int64_t weight_elements(const Layer& layer) {
  int64_t count = layer.in_channels;
  bool fits = multiply(count, layer.out_channels / layer.groups, count);
  for (int d = 0; d < layer.dims; ++d) fits = fits && multiply(count, layer.kernel[d], count);
  if (!fits) refuse("the weight has too many elements to address with 64 bits");
  return count;
}

int64_t activation_elements(const char* name, const Layer& layer, int64_t batch, int64_t channels,
                            const Extents& spatial) {
  int64_t count = batch;
  bool fits = multiply(count, channels, count);
  for (int d = 0; d < layer.dims; ++d) fits = fits && multiply(count, spatial[d], count);
  if (!fits)
    refuse(std::string("the ") + name + " of " + to_string(batch) + " x " + to_string(channels) + " x " +
           format_extents(layer.dims, spatial) + " has too many elements to address with 64 bits");
  return count;
}

/// Output size of one dimension, or a refusal. 128 bits hold every intermediate of 64-bit parameters.
int64_t output_extent(const Layer& layer, int dim, int64_t input, int64_t output_padding) {
  if (input <= 0) refuse("input size must be positive, got " + to_string(input) + in_dimension(dim));
  using wide = __int128;
  const wide size = wide(input - 1) * layer.stride[dim] - 2 * wide(layer.padding[dim]) +
                    wide(layer.dilation[dim]) * (layer.kernel[dim] - 1) + output_padding + 1;
  if (size <= 0)
    refuse("the output would have no elements" + in_dimension(dim) + ": input " + to_string(input) +
           " with stride " + to_string(layer.stride[dim]) + ", padding " + to_string(layer.padding[dim]) +
           ", kernel " + to_string(layer.kernel[dim]) + ", dilation " + to_string(layer.dilation[dim]) +
           " gives size " +
           (size < std::numeric_limits<int64_t>::min() ? "below -2^63" : to_string(int64_t(size))) +
           "; use less padding or a longer input");
  if (size > max_elements)
    refuse("the output size" + in_dimension(dim) + " does not fit in 64 bits: input " + to_string(input) +
           ", stride " + to_string(layer.stride[dim]) + ", dilation " + to_string(layer.dilation[dim]));
  // Engines form i·stride + k·dilation without checks: its largest value must fit as well.
  const wide reach = wide(input - 1) * layer.stride[dim] + wide(layer.dilation[dim]) * (layer.kernel[dim] - 1);
  if (reach > max_elements)
    refuse("positions" + in_dimension(dim) + " do not fit in 64 bits: input " + to_string(input) + ", stride " +
           to_string(layer.stride[dim]) + ", kernel " + to_string(layer.kernel[dim]) + ", dilation " +
           to_string(layer.dilation[dim]));
  return int64_t(size);
}

}  // namespace

std::string format_extents(int dims, const Extents& extents) {
  std::string text;
  for (int d = 0; d < dims; ++d) text += (d ? " x " : "") + to_string(extents[d]);
  return text;
}

void validate(const Layer& layer) {
  if (layer.dims < 1 || layer.dims > 3) refuse("dims must be 1, 2 or 3, got " + to_string(layer.dims));
  if (layer.groups <= 0) refuse("groups must be positive, got " + to_string(layer.groups));
  check_channels("in_channels", layer.in_channels, layer.groups);
  check_channels("out_channels", layer.out_channels, layer.groups);
  check_positive("kernel", layer, layer.kernel);
  check_positive("stride", layer, layer.stride);
  check_positive("dilation", layer, layer.dilation);
  check_non_negative("padding", layer, layer.padding);
  check_non_negative("output_padding", layer, layer.output_padding);
  for (int d = 0; d < layer.dims; ++d) {
    const int64_t bound = std::max(layer.stride[d], layer.dilation[d]);
    if (layer.output_padding[d] >= bound)
      refuse("output_padding must be smaller than stride or dilation, got " + to_string(layer.output_padding[d]) +
             in_dimension(d) + " with stride " + to_string(layer.stride[d]) + " and dilation " +
             to_string(layer.dilation[d]));
  }
  for (int d = 0; d < layer.dims; ++d) {
    int64_t reach;
    if (!multiply(layer.kernel[d] - 1, layer.dilation[d], reach))
      refuse("the kernel's reach" + in_dimension(d) + " does not fit in 64 bits: kernel " +
             to_string(layer.kernel[d]) + ", dilation " + to_string(layer.dilation[d]));
  }
  if (layer.dtype > DType::bf16) refuse("dtype must be f32, f64, f16 or bf16, got " + to_string(int(layer.dtype)));
  if (layer.precision > Precision::tf32)
    refuse("precision must be fp32 or tf32, got " + to_string(int(layer.precision)));
  if (layer.layout > Layout::channels_last)
    refuse("layout must be channels_first or channels_last, got " + to_string(int(layer.layout)));
  weight_elements(layer);
}

Extents output_size(const Layer& layer, const Extents& input) {
  validate(layer);
  Extents output{1, 1, 1};
  for (int d = 0; d < layer.dims; ++d) output[d] = output_extent(layer, d, input[d], layer.output_padding[d]);
  return output;
}

Extents output_padding_for(const Layer& layer, const Extents& input, const Extents& output) {
  Layer unpadded = layer;
  unpadded.output_padding = {0, 0, 0};
  validate(unpadded);
  Extents padding{0, 0, 0};
  for (int d = 0; d < layer.dims; ++d) {
    // The smallest size may be below 1 and still be reachable with output padding: ask one step above it.
    const int64_t bound = std::max(layer.stride[d], layer.dilation[d]);
    const int64_t largest = output_extent(unpadded, d, input[d], bound - 1);
    const int64_t smallest = largest - (bound - 1);
    if (output[d] < std::max<int64_t>(smallest, 1) || output[d] > largest)
      refuse("requested output size " + to_string(output[d]) + in_dimension(d) + " is not reachable from input " +
             to_string(input[d]) + ": valid sizes are " + to_string(std::max<int64_t>(smallest, 1)) + " to " +
             to_string(largest));
    padding[d] = output[d] - smallest;
  }
  return padding;
}

Extents canonical(int dims, const Extents& extents, int64_t fill) {
  Extents result{fill, fill, fill};
  for (int d = 0; d < dims; ++d) result[3 - dims + d] = extents[d];
  return result;
}

Geometry geometry_of(const Layer& layer) {
  return Geometry{.groups = layer.groups,
                  .group_in = layer.in_channels / layer.groups,
                  .group_out = layer.out_channels / layer.groups,
                  .kernel = canonical(layer.dims, layer.kernel),
                  .stride = canonical(layer.dims, layer.stride),
                  .padding = canonical(layer.dims, layer.padding, 0),
                  .dilation = canonical(layer.dims, layer.dilation)};
}

Shape shape_of(const Layer& layer, int64_t batch, const Extents& input) {
  if (batch < 0) refuse("batch must not be negative, got " + to_string(batch));
  const Extents output = output_size(layer, input);
  activation_elements("input", layer, batch, layer.in_channels, input);
  activation_elements("output", layer, batch, layer.out_channels, output);
  return Shape{.batch = batch, .input = canonical(layer.dims, input), .output = canonical(layer.dims, output)};
}

Work work(const Layer& layer, int64_t batch, const Extents& input) {
  const Shape shape = shape_of(layer, batch, input);
  const auto volume = [](const Extents& e) { return double(e[0]) * double(e[1]) * double(e[2]); };
  const double inputs = double(batch) * double(layer.in_channels) * volume(shape.input);
  const double outputs = double(batch) * double(layer.out_channels) * volume(shape.output);
  const double weights = double(weight_elements(layer));
  const double taps = weights / double(layer.in_channels);  // of one input element
  return Work{.flops = 2 * inputs * taps,
              .bytes = (inputs + outputs + weights + (layer.bias ? double(layer.out_channels) : 0.0)) *
                       double(size_of(layer.dtype))};
}

}  // namespace tconv
