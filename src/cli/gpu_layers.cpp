#include "cli/gpu_layers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/command.hpp"
#include "cli/text.hpp"
#include "cuda/runtime/targets.hpp"

namespace tconv::cli {

void GpuLayers::add_to(Flags& add) {
  choice_.add_to(add);
  add.list("--arch", architectures_, "Architectures, such as sm_90a (that of the GPU present)", "ARCH[,ARCH]");
  add.integer("--multiprocessors", multiprocessors_, "Multiprocessors of the GPU (as the common models have)", "N",
              1);
  add.list("--dtype", dtypes_, "f32, f64, f16, bf16 (f32)", "TYPE[,TYPE]");
  add.list("--precision", precisions_, "Of f32: fp32, tf32 (both)", "NAME[,NAME]");
  add.list("--layout", layouts_, "channels_first, channels_last (channels_first)", "LAYOUT[,LAYOUT]");
  add.list("--batch", batches_, "Batches (the problem's, or 1)", "N[,N]");
}

std::vector<Problem> GpuLayers::problems(const char* command) const {
  std::vector<Problem> problems = choice_.problems(command);
  if (batches_.empty()) return problems;
  std::vector<Problem> of_batches;
  for (const Problem& problem : problems)
    for (const std::string& text : batches_) {
      const std::vector<std::int64_t> values = parse_list("--batch", text);
      if (values.size() != 1 || values[0] < 1)
        throw UsageError(fmt::format("--batch must be positive numbers, as in 1,8,16; got '{}'", text));
      of_batches.push_back(problem);
      of_batches.back().batch = values[0];
    }
  return of_batches;
}

std::vector<Layer> GpuLayers::variants(const Problem& problem) const {
  std::vector<Layer> layers;
  for (const std::string& dtype : dtypes_)
    for (const std::string& precision : precisions_)
      for (const std::string& layout : layouts_) {
        Layer layer = problem.layer;
        layer.dtype = parse_dtype(dtype);
        layer.layout = parse_layout(layout);
        layer.precision = parse_precision(precision);
        if (layer.dtype != DType::f32) {
          if (precision != precisions_.front()) continue;  // the other types have one precision
          layer.precision = Precision::fp32;
        }
        layers.push_back(layer);
      }
  return layers;
}

std::vector<cuda::DeviceProperties> GpuLayers::devices() const try {
  std::vector<cuda::DeviceProperties> devices;
  for (const std::string& architecture : architectures_)
    devices.push_back(cuda::absent_device(architecture, int(std::min<std::int64_t>(multiprocessors_, 1 << 20))));
  if (!devices.empty()) return devices;
  if (!cuda::find_driver())
    throw UsageError(fmt::format("give --arch, one of {}: there is no GPU here to take it from ({})",
                                 fmt::join(cuda::known_architectures(), ", "), cuda::why_no_driver()));
  return {cuda::device_properties(0)};
} catch (const InvalidArgument& error) {
  throw UsageError(std::string("--arch: ") + error.what());
}

}  // namespace tconv::cli
