// Layers and sizes that do not fit the 32 bits kernels count with: refused, or served by the kernel that counts
// with more, and never cut.
#include "cuda/kernel_limits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cuda/engine.hpp"
#include "cuda/runtime/kernel.hpp"
#include "cuda/runtime/targets.hpp"
#include "support/expect_refusal.hpp"

namespace tconv::cuda {
namespace {

using std::int64_t;
using testing_support::refuses;

constexpr int64_t limit = largest_parameter;

std::unique_ptr<EnginePlan> plan(const Layer& layer) {
  validate(layer);
  static const DeviceProperties device = absent_device("sm_90a");
  return make_plan(layer, device);
}

TEST(KernelLimits, LargerParametersAreRefusedByName) {
  const auto is_refused = [](const Layer& layer, std::initializer_list<const char*> words) {
    return refuses<Unsupported>([&] { plan(layer); }, words);
  };
  constexpr int64_t large = int64_t(1) << 32;
  EXPECT_TRUE(is_refused({.kernel = {large}}, {"kernel", "1073741824", "got 4294967296", "in dimension 0"}));
  EXPECT_TRUE(is_refused({.dims = 2, .stride = {1, large}}, {"stride", "got 4294967296", "in dimension 1"}));
  EXPECT_TRUE(is_refused({.dims = 3, .padding = {0, 0, large}}, {"padding", "got 4294967296", "in dimension 2"}));
  EXPECT_TRUE(is_refused({.dilation = {limit + 1}}, {"dilation", "got 1073741825"}));
  EXPECT_TRUE(is_refused({.kernel = {1 << 20}, .dilation = {1 << 20}}, {"dilation * (kernel - 1)"}));
  EXPECT_TRUE(is_refused({.dims = 2, .kernel = {1 << 20, 1 << 20}}, {"taps", "got 1099511627776"}));
  EXPECT_TRUE(is_refused({.in_channels = large}, {"in_channels", "got 4294967296"}));
  EXPECT_TRUE(is_refused({.in_channels = large, .out_channels = large, .groups = large}, {"in_channels"}));
  EXPECT_TRUE(is_refused({.out_channels = large}, {"out_channels", "got 4294967296"}));
  // Output padding is smaller than the stride or the dilation.
  EXPECT_TRUE(is_refused({.stride = {large}, .output_padding = {large - 1}}, {"stride"}));
}

TEST(KernelLimits, WhatTheLayerDoesNotUseIsNotLookedAt) {
  EXPECT_NO_THROW(plan({.stride = {2, int64_t(1) << 40, -1}}));
}

/// "{1, 2, 3}", as kernels have it.
std::string text(const Extents& e) {
  return "{" + std::to_string(e[0]) + ", " + std::to_string(e[1]) + ", " + std::to_string(e[2]) + "}";
}

TEST(KernelLimits, ParametersUpToTheLimitArriveInTheKernel) {
  const int64_t few[] = {1, 2, 3, 5}, many[] = {17, 255, 256, 5000, 65535, 65536, 1 << 20, limit - 1, limit};
  std::mt19937 rng(1);
  const auto pick = [&] { return rng() % 2 ? few[rng() % std::size(few)] : many[rng() % std::size(many)]; };
  int served = 0;
  for (int i = 0; i < 4000; ++i) {
    Layer l;
    l.dims = 1 + int(rng() % 3);
    l.groups = rng() % 2 ? 1 : pick();
    l.in_channels = l.groups * few[rng() % std::size(few)],
    l.out_channels = l.groups * few[rng() % std::size(few)];
    l.dtype = DType(rng() % 4), l.precision = Precision(rng() % 2), l.layout = Layout(rng() % 2);
    Extents input{1, 1, 1};
    for (std::size_t d = 0; d < std::size_t(l.dims); ++d) {
      l.kernel[d] = pick(), l.stride[d] = pick(), l.dilation[d] = pick(), input[d] = few[rng() % std::size(few)];
      // As much as leaves an output.
      l.padding[d] = std::min(pick(), ((input[d] - 1) * l.stride[d] + l.dilation[d] * (l.kernel[d] - 1)) / 2);
    }
    KernelRecord record;
    DeviceProperties device = absent_device(rng() % 2 ? "sm_90a" : "sm_80");
    device.record = &record;
    try {
      const Shape shape = shape_of(l, 2, input);
      make_plan(l, device)->bind(shape);
    } catch (const Error&) {
      continue;  // too many elements, or too far a reach
    }
    ++served;
    const Geometry g = geometry_of(l);
    for (const KernelRequest& request : record.requests()) {
      const bool as_it_is = request.source.find("generic.cuh") != std::string::npos ||
                            request.source.find("direct_") != std::string::npos;
      if (!as_it_is) continue;  // tensor cores may see the layer otherwise
      for (const Extents& extents : {g.kernel, g.stride, g.padding, g.dilation})
        ASSERT_NE(request.source.find(text(extents)), std::string::npos) << text(extents) << "\n"
                                                                         << request.source;
    }
  }
  EXPECT_GT(served, 500);
}

TEST(KernelLimits, LargerSizesAreTheGenericKernels) {
  const auto kernels = [](const Layer& layer, int64_t batch, int64_t input) {
    KernelRecord record;
    DeviceProperties device = absent_device("sm_90a");
    device.record = &record;
    make_plan(layer, device)->bind(shape_of(layer, batch, {input}));
    std::vector<std::string> forward;
    for (const KernelRequest& request : record.requests())
      if (request.entry == "forward") forward.push_back(request.source.substr(0, request.source.find('\n')));
    return forward;
  };
  const std::vector<std::string> generic{"#include \"generic.cuh\""};
  const Layer dense{.in_channels = 32, .out_channels = 32, .kernel = {4}, .stride = {2}, .padding = {1}};
  const Layer depthwise{.in_channels = 8, .out_channels = 8, .kernel = {4}, .stride = {2}, .groups = 8};
  const Layer padded{.in_channels = 32, .out_channels = 32, .stride = {2}, .padding = {limit}};
  for (const Layer& layer : {dense, depthwise}) {
    EXPECT_NE(kernels(layer, 1, int64_t(1) << 20), generic);
    // A power of two stands for this length, and its output would be too long.
    EXPECT_NE(kernels(layer, 1, (int64_t(1) << 29) + 1), generic);
    EXPECT_EQ(kernels(layer, 1, int64_t(1) << 30), generic);
    EXPECT_EQ(kernels(layer, 1, (int64_t(1) << 32) + 5), generic);
    EXPECT_EQ(kernels(layer, int64_t(1) << 32, 5), generic);
  }
  // Positions begin before the output: padding and all they are more than 32 bits count.
  EXPECT_NE(kernels(padded, 1, limit + 1000), generic);
  EXPECT_EQ(kernels(padded, 1, 3 * (limit / 2)), generic);
}

}  // namespace
}  // namespace tconv::cuda
