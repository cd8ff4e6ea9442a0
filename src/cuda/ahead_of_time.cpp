#include "cuda/ahead_of_time.hpp"

#include <set>

#include "cuda/engine.hpp"
#include "cuda/runtime/cache.hpp"
#include "cuda/runtime/nvrtc.hpp"
#include "cuda/tensor_views.hpp"

namespace tconv::cuda {
namespace {

using std::int64_t;

constexpr int64_t widest_copy = 16;  // bytes; rows and addresses that are multiples of it are all alike

/// A place where nothing is: never read, for nothing is launched. Its alignment is what counts.
void* place(int64_t offset) {
  return reinterpret_cast<void*>((int64_t(1) << 20) + offset);
}

/// This width, and the next ones of every alignment.
std::set<int64_t> widths(const Layer& layer, int64_t width) {
  const int64_t element = int64_t(size_of(layer.dtype)), period = widest_copy / element;
  std::set<int64_t> result{width};
  const int64_t aligned = (width + period - 1) / period * period;
  for (int64_t step = 1; step <= period; step *= 2) result.insert(aligned + (step == period ? 0 : step));
  return result;
}

/// Strides no dense tensor has, out of reach of 32 bits.
Tensor far_apart(Tensor t) {
  for (std::size_t d = 0; d < 5; ++d) t.strides[d] = int64_t(1) << 33;
  return t;
}

}  // namespace

std::vector<KernelRequest> kernels_of(const Layer& layer, int64_t batch, const Extents& input,
                                      const DeviceProperties& described) {
  KernelRecord record;
  DeviceProperties device = described;
  device.record = &record;
  const Geometry geometry = geometry_of(layer);
  const auto plan = make_plan(layer, device);
  const int64_t element = int64_t(size_of(layer.dtype));
  const std::size_t last = std::size_t(layer.dims) - 1;
  for (const int64_t width : widths(layer, input[last])) {
    Extents size = input;
    size[last] = width;
    const Shape shape = shape_of(layer, std::max<int64_t>(batch, 1), size);
    const auto binding = plan->bind(shape);
    const auto run = [&](const Tensor& x, const Tensor& y) {
      const ConstTensor input_view = x;
      Tensor weight;
      weight.data = place(0), weight.dtype = layer.dtype, weight.rank = 5;
      weight.sizes = {geometry.in_channels(), geometry.group_out, geometry.kernel[0], geometry.kernel[1],
                      geometry.kernel[2]};
      const ConstTensor weight_view = weight;
      Operands operands;
      operands.input = &input_view, operands.weight = &weight_view, operands.output = &y;
      RunOptions options;
      options.workspace = place(0);
      options.workspace_bytes = binding->workspace_bytes(Pass::forward, 1, true);
      binding->run(Pass::forward, operands, options);
    };
    const auto x = [&](int64_t offset) {
      return dense_view(place(offset), layer.dtype, shape.batch, geometry.in_channels(), shape.input,
                        layer.layout);
    };
    const auto y = [&](int64_t offset) {
      return dense_view(place(offset), layer.dtype, shape.batch, geometry.out_channels(), shape.output,
                        layer.layout);
    };
    run(x(0), y(0));
    for (int64_t offset = element; offset < widest_copy; offset *= 2) {
      run(x(offset), y(offset));
      run(x(offset), y(0));  // a view of a larger tensor, and a new output
    }
    run(far_apart(x(0)), far_apart(y(0)));
  }
  return record.requests();
}

bool is_kept(const KernelRequest& request, const std::string& architecture) {
  return read_cache(cache_key(request.source, architecture)).has_value();
}

Kept keep_kernel(const KernelRequest& request, const std::string& architecture) {
  if (is_kept(request, architecture)) return Kept::was_there;
  const std::string code = nvrtc_compile(request.source, architecture).binary;
  if (const std::error_code error = write_cache(cache_key(request.source, architecture), code))
    throw Error(ErrorCode::device_error,
                "cannot write to the cache " + cache_directory() + ": " + error.message());
  return Kept::compiled;
}

}  // namespace tconv::cuda
