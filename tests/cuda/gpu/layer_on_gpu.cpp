#include "gpu/layer_on_gpu.hpp"

#include <algorithm>
#include <cmath>

#include "cuda/engine.hpp"
#include "cuda/tensor_views.hpp"

namespace tconv::cuda::check {
namespace {

using std::int64_t;

constexpr unsigned char poison = 0xff;  // NaN in every type

int64_t input_count(const Geometry& g, const Shape& s) {
  return s.batch * g.in_channels() * volume(s.input);
}
int64_t weight_count(const Geometry& g) {
  return g.in_channels() * g.group_out * g.taps();
}
int64_t output_count(const Geometry& g, const Shape& s) {
  return s.batch * g.out_channels() * volume(s.output);
}

}  // namespace

bool wanted(const char* variable, const char* name) {
  const char* list = std::getenv(variable);
  return !list || std::string(list).find(name) != std::string::npos;
}

std::vector<Mode> wanted_modes() {
  std::vector<Mode> result;
  for (const Mode& mode : modes)
    if (wanted("GPU_CHECK_MODES", mode.name)) result.push_back(mode);
  if (result.empty()) throw InvalidArgument("GPU_CHECK_MODES names none of tf32, fp32, fp16, bf16, fp64");
  return result;
}

const Mode& mode_named(const std::string& name) {
  for (const Mode& mode : modes)
    if (name == mode.name) return mode;
  throw InvalidArgument("a mode is tf32, fp32, fp16, bf16 or fp64, got '" + name + "'");
}

bool within(const Outcome& o, double bar) {
  // A result that is exact but for a few elements has almost no error in norm: a thousandth of the bar is let
  // pass.
  return o.bad == 0 && o.error <= bar && o.worst <= 50 * std::max(o.error, bar * 1e-3);
}

Expected::Expected(const Geometry& g, const Shape& s)
    : x(std::size_t(input_count(g, s)) * 8),
      w(std::size_t(weight_count(g)) * 8),
      b(std::size_t(g.out_channels()) * 8),
      y(std::size_t(output_count(g, s)) * 8) {}

std::string family_of(const std::string& kernel) {
  const auto gemm = kernel.find("_gemm");
  return gemm == std::string::npos ? kernel.substr(0, kernel.find('_')) : kernel.substr(0, gemm + 5);
}

LayerOnGpu::LayerOnGpu(const Layer& layer, const Shape& shape, const Variation& variation)
    : layer_(layer),
      geometry_(geometry_of(layer)),
      shape_(shape),
      variation_(variation),
      plan_(make_plan(layer, 0)),
      binding_(plan_->bind(shape)),
      kernel_name_(binding_->kernel_name(Pass::forward)),
      x_(std::size_t(input_count(geometry_, shape)) * size_of(layer.dtype)),
      w_(std::size_t(weight_count(geometry_)) * size_of(layer.dtype)),
      b_(std::size_t(geometry_.out_channels()) * size_of(layer.dtype)),
      y_(std::size_t(output_count(geometry_, shape) * spacing()) * size_of(layer.dtype) + 2 * guard_bytes),
      packed_(plan_->packed_weight_bytes(Pass::forward)),
      workspace_(binding_->workspace_bytes(Pass::forward, 1, true)) {
  const Geometry& g = geometry_;
  const bool last = (layer.layout == Layout::channels_last) != variation.other_layout;
  const Layout layout = last ? Layout::channels_last : Layout::channels_first;
  xt_ = dense_view(x_.get(), layer.dtype, shape.batch, g.in_channels(), shape.input, layout);
  wt_ = dense_view(w_.get(), layer.dtype, g.in_channels(), g.group_out, g.kernel, Layout::channels_first);
  bt_ = dense_view(b_.get(), layer.dtype, g.out_channels(), 1, {1, 1, 1}, Layout::channels_first);
  yt_ = dense_view(static_cast<std::byte*>(y_.get()) + guard_bytes, layer.dtype, shape.batch, g.out_channels(),
                   shape.output, layout);
  for (auto& stride : yt_.strides) stride *= spacing();
}

void LayerOnGpu::randomize(const Tools& tools, unsigned seed, const Expected& expected) {
  const auto wide = [](const Buffer& b) { return static_cast<double*>(b.get()); };
  tools.randomize(xt_, wide(expected.x), 3 * seed + 1, 1);
  tools.randomize(wt_, wide(expected.w), 3 * seed + 2,
                  1 / std::sqrt(double(geometry_.group_in * geometry_.taps())));
  tools.randomize(bt_, wide(expected.b), 3 * seed + 3, 1);
  if (variation_.prepacked) plan_->pack_weight(Pass::forward, wt_, packed_.get(), {});
}

void LayerOnGpu::run() const {
  const ConstTensor x = xt_, w = wt_, b = bt_;
  RunOptions options;
  if (variation_.prepacked) options.packed_weight = packed_.get();
  options.workspace = workspace_.get(), options.workspace_bytes = workspace_.bytes();
  const Operands operands{
      .input = &x, .weight = &w, .bias = layer_.bias ? &b : nullptr, .grad_output = nullptr, .output = &yt_};
  kernel_name_ = binding_->run_named(Pass::forward, operands, options);
}

Verdict LayerOnGpu::check(const Tools& tools, const Expected& expected) const {
  Verdict verdict;
  const Buffer first(y_.bytes());
  y_.fill(poison);
  run();
  driver().check(driver().cuMemcpyDtoDAsync(first.address(), y_.address(), y_.bytes(), nullptr),
                 "cuMemcpyDtoDAsync", "keeping a result");
  y_.fill(poison);
  run();
  synchronize("running " + kernel_name());
  verdict.differing_words = tools.differing_words(first, y_);
  verdict.outcome = tools.compare(yt_, static_cast<const double*>(expected.y.get()));
  verdict.stray_bytes = stray_bytes();
  return verdict;
}

int64_t LayerOnGpu::stray_bytes() const {
  const std::size_t element = size_of(layer_.dtype);
  int64_t stray = 0;
  if (spacing() == 1) {  // the guards alone: outputs can be large
    const std::size_t after = y_.bytes() - guard_bytes;
    Buffer ends(2 * guard_bytes);
    for (const auto& [to, from] : {std::pair(std::size_t(0), std::size_t(0)), std::pair(guard_bytes, after)})
      driver().check(driver().cuMemcpyDtoDAsync(ends.address() + to, y_.address() + from, guard_bytes, nullptr),
                     "cuMemcpyDtoDAsync", "reading guards");
    for (const auto byte : ends.download<unsigned char>(2 * guard_bytes)) stray += byte != poison;
    return stray;
  }
  const auto all = y_.download<unsigned char>(y_.bytes());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool inside = i >= guard_bytes && i < all.size() - guard_bytes;
    const bool in_view = inside && (i - guard_bytes) / element % std::size_t(spacing()) == 0;
    stray += !in_view && all[i] != poison;
  }
  return stray;
}

}  // namespace tconv::cuda::check
