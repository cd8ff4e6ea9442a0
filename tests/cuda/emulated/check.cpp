#include "emulated/check.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <regex>

#include "cuda/engine.hpp"
#include "cuda/runtime/targets.hpp"
#include "cuda/tensor_views.hpp"
#include "emulated/guarded.hpp"
#include "emulated/races.hpp"
#include "reference/reference.hpp"

namespace tconv::cuda::emulated {
namespace races = emulation::races;
namespace {

using std::int64_t;
using testing_support::load_element;
using testing_support::rounded;
using testing_support::store_element;

/// A dense view as the API passes it.
Tensor view_of(const Layer& layer, void* data, int64_t batch, int64_t channels, const Extents& size) {
  Tensor t = dense_view(data, layer.dtype, batch, channels, size, layer.layout);
  for (std::size_t i = 2; i < 5; ++i)
    if (t.sizes[i] == 1) t.strides[i] = 1;
  return t;
}

int64_t volume(const Extents& e) {
  return e[0] * e[1] * e[2];
}

/// Calls visit(dense channels-first index, element index in the tensor) for every element.
template <class Visit>
void each(const Tensor& t, const Visit& visit) {
  int64_t dense = 0;
  for (int64_t n = 0; n < t.sizes[0]; ++n)
    for (int64_t c = 0; c < t.sizes[1]; ++c)
      for (int64_t d = 0; d < t.sizes[2]; ++d)
        for (int64_t h = 0; h < t.sizes[3]; ++h)
          for (int64_t w = 0; w < t.sizes[4]; ++w)
            visit(dense++,
                  n * t.strides[0] + c * t.strides[1] + d * t.strides[2] + h * t.strides[3] + w * t.strides[4]);
}

/// Counts what a kernel that a layer was run by is one of.
void count_families(const Case& c, const std::string& kernel, std::map<std::string, int>& families) {
  const Layer& layer = c.layer;
  const std::string family =
      kernel.substr(0, kernel.find("_gemm") == std::string::npos ? kernel.size() : kernel.find("_gemm"));
  ++families[family];
  if (family == "panel" && layer.layout == Layout::channels_last) ++families["panel, channels last"];
  // Channels that fill vectors are stored so, whatever strides dimensions of size 1 have.
  if (family == "panel" && layer.layout == Layout::channels_last && layer.out_channels % 8 == 0) {
    EXPECT_NE(kernel.find(layer.dtype == DType::f32 ? "_y4" : "_y8"), std::string::npos)
        << c.text << " " << kernel;
  }
  if (family == "panel" && std::regex_search(kernel, std::regex("_b[2-4]_")))
    ++families["panel of channel blocks"];
  if (const int inputs = inputs_of_position(kernel); inputs > 1)
    ++families["panel, " + std::to_string(inputs) + " inputs a position"];
  if (family == "panel" && kernel.find("_p2") != std::string::npos) ++families["panel in parts"];
  if (kernel.find("_turned") != std::string::npos) ++families["turned panel"];
  if (kernel.find("_mapped") != std::string::npos) ++families["mapped panel"];
  if (kernel.find("_once") != std::string::npos) ++families["panel turned once for all boxes"];
  if (kernel.find("_beside") != std::string::npos) ++families["panel of rows side by side"];
  if (kernel.find("_k4_") != std::string::npos) ++families[family + " of paired steps"];
  if (kernel.find("_split") != std::string::npos) ++families["panel of shared sums"];
  if (kernel.find("_cluster") != std::string::npos) ++families["panel of clusters"];
  if (kernel.find("_shifts") != std::string::npos) ++families["panel of one shift"];
  if (kernel.find("_moved") != std::string::npos) ++families["panel of moved positions"];
  if (kernel.find("_pairs") != std::string::npos) ++families["panel of paired rows"];
  if (kernel.find("_phases") != std::string::npos) ++families["panel of outputs as channels"];
  if (std::regex_search(kernel, std::regex("_(halves|half)_"))) ++families["panel of halves"];
  if (std::regex_search(kernel, std::regex("_rows[0-9]"))) ++families["panel of joined rows"];
  if (std::regex_search(kernel, std::regex("_runs[0-9]"))) ++families["panel of whole rows"];
  if (kernel.find("_shared") != std::string::npos) ++families["panel of shared zeros"];
  if (kernel.find("_turns") != std::string::npos) ++families["panel in turns"];
  if (kernel.find("_fills") != std::string::npos) ++families["panel that fills"];
  if (std::regex_search(kernel, std::regex("[x_][0-9]+(\\.[0-9]+){3}_")))
    ++families[family + " of several images"];
}

}  // namespace

int inputs_of_position(const std::string& kernel) {
  std::smatch found;
  return std::regex_search(kernel, found, std::regex("_x([248])_")) ? std::stoi(found[1]) : 1;
}

Emulation::~Emulation() {
  for (const std::string& variable : variables_) unsetenv(variable.c_str());
}

void Emulation::set(const char* variable, const std::string& value) {
  variables_.insert(variable);
  setenv(variable, value.c_str(), 1);
}

void Emulation::unset(const char* variable) {
  unsetenv(variable);
}

void Emulation::print_families() const {
  for (const auto& [family, count] : families) std::printf("%4d layers by %s\n", count, family.c_str());
}

std::string Emulation::check(const Case& c, std::mt19937& rng) {
  const Layer& layer = c.layer;
  const Geometry g = geometry_of(layer);
  const Shape s = shape_of(layer, c.batch, c.input);
  DeviceProperties device = absent_device("sm_90a", c.multiprocessors);
  device.record = &emulator, device.exported = c.exported;
  std::uniform_real_distribution<double> uniform(-1, 1);
  const int64_t x_count = s.batch * g.in_channels() * volume(s.input);
  const int64_t y_count = s.batch * g.out_channels() * volume(s.output);
  const int64_t w_count = g.in_channels() * g.group_out * g.taps();
  const int64_t b_count = (g.out_channels() - 1) * std::abs(c.bias_stride) + 1;
  Guarded x(layer.dtype, x_count, NAN), w(layer.dtype, w_count, NAN), b(layer.dtype, b_count, NAN),
      y(layer.dtype, y_count, NAN);
  reference::Array x_wide(static_cast<std::size_t>(x_count)), w_wide(static_cast<std::size_t>(w_count)), b_wide;
  Tensor xt = view_of(layer, x.data(), s.batch, g.in_channels(), s.input);
  if (c.backwards) {
    xt.data = x.data((s.batch - 1) * xt.strides[0]);
    xt.strides[0] = -xt.strides[0];
  }
  const Tensor yt = view_of(layer, y.data(), s.batch, g.out_channels(), s.output);
  each(xt, [&](int64_t dense, int64_t at) {
    const int64_t channel = dense / volume(s.input) % g.in_channels();
    const bool far = c.x_step != 1 && dense % s.input[2] >= s.input[2] / 2;
    const double size = channel >= g.in_channels() / 2 ? c.x_size * c.x_step : far ? 0 : c.x_size;
    x_wide[std::size_t(dense)] = rounded(layer.dtype, uniform(rng) * size);
    if (c.infinite && dense == x_count / 2) x_wide[std::size_t(dense)] = INFINITY;
    store_element(layer.dtype, xt.data, at, x_wide[std::size_t(dense)]);
  });
  for (int64_t i = 0; i < w_count; ++i) {
    const double size = c.w_size * std::pow(c.w_uneven, double(i / g.taps() % g.group_out));
    w_wide[std::size_t(i)] = rounded(layer.dtype, uniform(rng) * size);
    store_element(layer.dtype, w.data(), i, w_wide[std::size_t(i)]);
  }
  Tensor wt = view_of(layer, w.data(), g.in_channels(), g.group_out, g.kernel);
  wt.strides = {g.group_out * g.taps(), g.taps(), g.kernel[1] * g.kernel[2], g.kernel[2], 1};
  Tensor bt;
  bt.data = b.data(c.bias_stride < 0 ? b_count - 1 : 0), bt.strides[0] = c.bias_stride;
  if (layer.bias)
    for (int64_t i = 0; i < g.out_channels(); ++i) {
      b_wide.push_back(c.bias_stride == 0 && i > 0 ? b_wide.front() : rounded(layer.dtype, uniform(rng)));
      store_element(layer.dtype, bt.data, i * c.bias_stride, b_wide.back());
    }

  const auto plan = make_plan(layer, device);
  const auto binding = plan->bind(s);
  // What is in it does not matter, and nothing behind it is touched.
  const std::size_t workspace_bytes = binding->workspace_bytes(Pass::forward, 1, true);
  std::vector<unsigned char> workspace(workspace_bytes + 64, 0xff);
  const ConstTensor xc = xt, wc = wt, bc = bt;
  RunOptions options;
  options.workspace = workspace.data(), options.workspace_bytes = workspace_bytes;
  const auto run = [&] {
    return binding->run_named(
        Pass::forward,
        {.input = &xc, .weight = &wc, .bias = layer.bias ? &bc : nullptr, .grad_output = nullptr, .output = &yt},
        options);
  };
  races::begin_layer(races::Doubts::forgotten);
  const std::string kernel = run();
  const races::Found found = races::found();
  for (const std::string& race : found.races) ADD_FAILURE() << c.text << " [" << kernel << "]: " << race;
  std::string doubts;
  for (const std::string& doubt : found.doubts) doubts += "\n" + doubt;
  if (!doubts.empty()) {
    // Right or wrong, the outputs that are compared below are those whose products read NaN where in doubt.
    doubts = "; where products read in doubt:" + doubts;
    each(yt, [&](int64_t, int64_t at) { store_element(layer.dtype, y.data(), at, NAN); });
    std::fill(workspace.begin(), workspace.end(), static_cast<unsigned char>(0xff));
    races::begin_layer(races::Doubts::poisoned);
    run();
  }
  EXPECT_TRUE(std::all_of(workspace.begin() + std::ptrdiff_t(workspace_bytes), workspace.end(),
                          [](unsigned char byte) { return byte == 0xff; }))
      << c.text;
  count_families(c, kernel, families);

  const reference::Array want = reference::forward(g, s, x_wide, w_wide, b_wide);
  // Of each output channel by itself where their weights differ in size, and of each half of rows where x does.
  struct Sums {
    double error = 0, norm = 0;
  };
  std::vector<Sums> sums(c.w_uneven != 1 ? std::size_t(g.out_channels()) : c.x_step != 1 ? 2 : 1);
  int64_t missing = 0, infinite = 0;
  each(yt, [&](int64_t dense, int64_t at) {
    const double got = load_element(layer.dtype, y.data(), at), right = want[std::size_t(dense)];
    if (!std::isfinite(right)) {
      ++infinite;
      EXPECT_FALSE(std::isfinite(got)) << c.text << " [" << kernel << "]";
      return;
    }
    if (std::isnan(got)) {
      ++missing;
      return;
    }
    const std::size_t of = c.w_uneven != 1 ? std::size_t(dense / volume(s.output) % g.out_channels())
                           : c.x_step != 1 ? dense % s.output[2] >= s.output[2] / 2 + g.kernel[2]
                                           : 0;
    Sums& s_of = sums[of];
    s_of.error += (got - right) * (got - right), s_of.norm += right * right;
  });
  EXPECT_EQ(infinite > 0, c.infinite) << c.text;
  const double bar = layer.dtype == DType::f64            ? 1e-13
                     : layer.dtype == DType::f16          ? 1e-3
                     : layer.dtype == DType::bf16         ? 8e-3
                     : layer.precision == Precision::tf32 ? 4e-4
                                                          : 1e-6;
  EXPECT_EQ(missing, 0) << c.text << " [" << kernel << "]: outputs that were not written, or read from outside"
                        << doubts;
  Sums all;
  for (const Sums& s_of : sums) all.error += s_of.error, all.norm += s_of.norm;
  error = std::sqrt(all.error / all.norm);
  for (const Sums& s_of : sums)
    EXPECT_LE(std::sqrt(s_of.error), bar * 1.3 * std::sqrt(s_of.norm))
        << c.text << " [" << kernel << "]" << doubts;
  EXPECT_TRUE(y.intact()) << c.text << " [" << kernel << "]: written outside of the output";
  return kernel;
}

}  // namespace tconv::cuda::emulated
