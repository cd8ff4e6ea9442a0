// tconv run: a layer on the user's own arrays.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/flags.hpp"
#include "cli/npy.hpp"
#include "cli/text.hpp"
#include "tconv/tconv.hpp"

namespace tconv::cli {
namespace {

struct RunFlags {
  std::string input, weight, bias, output;
  std::string stride = "1", padding = "0", output_padding, dilation = "1", output_size;
  std::int64_t groups = 1;
  std::int64_t threads = 0;
  bool quiet = false;
};

void add_flags(Flags& add, RunFlags& flags) {
  add.heading("Arrays");
  add.text("--input", flags.input, "x.npy: (batch, in_channels, *size), or without the batch axis", "FILE")
      .required();
  add.text("--weight", flags.weight, "w.npy: (in_channels, out_channels / groups, *kernel)", "FILE").required();
  add.text("--bias", flags.bias, "b.npy: (out_channels,)", "FILE");
  add.text("--output", flags.output, "y.npy: where the result goes", "FILE").required();
  add.heading("Layer (one number for all dimensions, or one per dimension as in 2,3)");
  add.text("--stride", flags.stride, "Stride (1)", "N[,N]");
  add.text("--padding", flags.padding, "Padding (0)", "N[,N]");
  add.text("--output-padding", flags.output_padding, "Output padding (0)", "N[,N]");
  add.text("--output-size", flags.output_size, "Size wanted instead; sets the output padding", "N[,N]");
  add.text("--dilation", flags.dilation, "Dilation (1)", "N[,N]");
  add.integer("--groups", flags.groups, "Groups (1)", "N", 1);
  add.heading("Options");
  add.integer("--threads", flags.threads, "Threads (0: TCONV_NUM_THREADS, or one per CPU)", "N", 0);
  add.toggle("-q,--quiet", flags.quiet, "Say nothing about the result");
  add.footer(R"(
Computes y = ConvTranspose(x, w) + b on the CPU, on arrays saved with numpy.save. The weight's shape says how
many dimensions the layer has. All arrays must hold the same type: float16, float32 or float64.

The output file appears whole or not at all: a run that fails leaves what was there before.

Examples:
  tconv run --input x.npy --weight w.npy --output y.npy
  tconv run --input x.npy --weight w.npy --bias b.npy --stride 8 --padding 4 --output y.npy
  tconv run --input x.npy --weight w.npy --stride 2,3 --output-size 127,255 --output y.npy)");
}

/// The layer the weight's shape and the flags describe.
Layer layer_of(const RunFlags& flags, const NpyArray& weight) {
  const int dims = int(weight.shape.size()) - 2;
  if (dims < 1 || dims > 3)
    throw Failure(
        fmt::format("{} has shape {}; a weight has 3 to 5 axes: (in_channels, out_channels / groups, *kernel)",
                    flags.weight, format_shape(weight.shape)));
  Layer layer;
  layer.dims = dims;
  layer.groups = flags.groups;
  layer.in_channels = weight.shape[0];
  if (__builtin_mul_overflow(weight.shape[1], flags.groups, &layer.out_channels))
    throw UsageError(fmt::format("--groups {} is far too large", flags.groups));
  for (int d = 0; d < dims; ++d) layer.kernel[std::size_t(d)] = weight.shape[std::size_t(d) + 2];
  layer.stride = parse_extents("--stride", flags.stride, dims);
  layer.padding = parse_extents("--padding", flags.padding, dims);
  layer.dilation = parse_extents("--dilation", flags.dilation, dims);
  if (!flags.output_padding.empty())
    layer.output_padding = parse_extents("--output-padding", flags.output_padding, dims);
  layer.bias = !flags.bias.empty();
  layer.dtype = weight.dtype;
  return layer;
}

void check_same_dtype(const std::string& path, const NpyArray& array, const std::string& other, DType expected) {
  if (array.dtype != expected)
    throw Failure(fmt::format("{} holds {}, but {} holds {}; all arrays must hold the same type", path,
                              numpy_name(array.dtype), other, numpy_name(expected)));
}

/// True if the input has no batch axis. Refuses an input that does not fit the layer.
bool check_input(const RunFlags& flags, const Layer& layer, const NpyArray& input) {
  const std::size_t rank = input.shape.size();
  const std::size_t dims = std::size_t(layer.dims);
  if (rank != dims + 1 && rank != dims + 2)
    throw Failure(
        fmt::format("{} has shape {}; the weight in {} makes the layer {}D, so the input needs {} axes "
                    "(batch, channels, *size), or {} without the batch",
                    flags.input, format_shape(input.shape), flags.weight, layer.dims, dims + 2, dims + 1));
  const bool unbatched = rank == dims + 1;
  const std::int64_t channels = input.shape[unbatched ? 0 : 1];
  if (channels != layer.in_channels)
    throw Failure(fmt::format("{} has shape {}: {} channels, but the weight in {} has shape of a layer with {}",
                              flags.input, format_shape(input.shape), channels, flags.weight, layer.in_channels));
  return unbatched;
}

void check_bias(const RunFlags& flags, const Layer& layer, const NpyArray& bias) {
  if (bias.shape.size() != 1 || bias.shape[0] != layer.out_channels)
    throw Failure(fmt::format("{} has shape {}, but a layer with {} output channels needs a bias of shape ({},)",
                              flags.bias, format_shape(bias.shape), layer.out_channels, layer.out_channels));
}

int execute(const RunFlags& flags) {
  if (!flags.output_size.empty() && !flags.output_padding.empty())
    throw UsageError("--output-size and --output-padding cannot be given together");
  for (const std::string* read : {&flags.input, &flags.weight, &flags.bias})
    if (!read->empty() && same_file(*read, flags.output))
      throw Failure(fmt::format("{} is read by this run; give --output another name", flags.output));
  check_writable(flags.output);

  NpyArray weight = read_npy(flags.weight);
  Layer layer = layer_of(flags, weight);
  NpyArray input = read_npy(flags.input);
  check_same_dtype(flags.input, input, flags.weight, weight.dtype);
  const bool unbatched = check_input(flags, layer, input);
  NpyArray bias;
  if (layer.bias) {
    bias = read_npy(flags.bias);
    check_same_dtype(flags.bias, bias, flags.weight, weight.dtype);
    check_bias(flags, layer, bias);
  }

  const Tensor x = input.view(unbatched ? 1 : 0);
  Extents size{1, 1, 1};
  for (int d = 0; d < layer.dims; ++d) size[std::size_t(d)] = x.sizes[std::size_t(d) + 2];
  if (!flags.output_size.empty())
    layer.output_padding =
        output_padding_for(layer, size, parse_extents("--output-size", flags.output_size, layer.dims));

  const auto pool = make_thread_pool(int(std::min<std::int64_t>(flags.threads, std::numeric_limits<int>::max())));
  const Binding binding = Plan(layer).bind(x.sizes[0], size);
  NpyArray output;
  output.dtype = layer.dtype;
  if (!unbatched) output.shape.push_back(binding.batch());
  output.shape.push_back(layer.out_channels);
  for (int d = 0; d < layer.dims; ++d) output.shape.push_back(binding.output_size()[std::size_t(d)]);
  std::size_t bytes = size_of(layer.dtype);
  for (const std::int64_t extent : output.shape) bytes *= std::size_t(extent);
  output.data.resize(bytes);

  std::vector<std::byte> workspace(binding.workspace_bytes(Pass::forward, pool->concurrency()));
  const ConstTensor bias_view = bias.view();
  const auto start = std::chrono::steady_clock::now();
  binding.forward(x, weight.view(), layer.bias ? &bias_view : nullptr, output.view(unbatched ? 1 : 0),
                  {.workspace = workspace.data(), .workspace_bytes = workspace.size(), .executor = pool.get()});
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;

  write_npy(flags.output, output);
  if (!flags.quiet)
    fmt::print(stderr, "{}: {} {}, computed in {} on {} threads\n", flags.output, numpy_name(output.dtype),
               format_shape(output.shape), format_seconds(elapsed.count()), pool->concurrency());
  return exit_ok;
}

}  // namespace

Command add_run(CommandLine& line) {
  return command_of(line, "run", "Compute a layer on the CPU, on arrays in .npy files", add_flags, execute);
}

}  // namespace tconv::cli
