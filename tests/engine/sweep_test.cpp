// A seeded random sweep over layers of 1, 2 and 3 dimensions: groups up to depthwise, both layouts, all
// dtypes, views of every kind; forward and all gradients against the oracle, and against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cpu/engine.hpp"
#include "layer/layer.hpp"
#include "support/cases.hpp"
#include "support/scale.hpp"

namespace {

using namespace testing_support;
using tconv::DType;
using tconv::Layer;
using tconv::Layout;

TEST(Sweep, NativeLayouts) {
  Random random(101);
  const auto pool = tconv::make_thread_pool(3);
  std::map<std::string, int> kinds;
  for (int i = 0; i < scaled(2000); ++i) {
    const Case c = random_case(random, i % 20 == 0 ? 1e6 : 1e5);
    ASSERT_EQ(check_case(c, native_orders(c.layer), random, pool.get(), 1 + i % 4), "")
        << "case " << i << ": " << describe(c);
    ++kinds[std::to_string(c.layer.dims) + "D " + to_string(c.layer.dtype) + " " + to_string(c.layer.layout)];
  }
  EXPECT_EQ(kinds.size(), 3u * 4u * 2u) << "every mixture of dims, dtype and layout was drawn";
}

TEST(Sweep, AnyViews) {
  Random random(102);
  SerialExecutor serial;
  for (int i = 0; i < scaled(1000); ++i) {
    const Case c = random_case(random, 5e4);
    ASSERT_EQ(check_case(c, random_orders(random), random, i % 2 ? &serial : nullptr, 1 + i % 3), "")
        << "case " << i << ": " << describe(c);
  }
}

/// Layers large enough to be cut into several tiles in every direction: more channels than fit a register or
/// cache block on either side, more positions than one tile, more taps than one step of the reduction.
TEST(Sweep, ManyTiles) {
  const Layer shapes[] = {
      {.dims = 1, .in_channels = 300, .out_channels = 70, .kernel = {7}, .stride = {3}, .padding = {2}},
      {.dims = 1, .in_channels = 24, .out_channels = 530, .kernel = {4}, .stride = {2}, .padding = {1}},
      {.dims = 1, .in_channels = 5, .out_channels = 3, .kernel = {41}, .stride = {10}, .padding = {15}},
      {.dims = 1, .in_channels = 257, .out_channels = 257, .kernel = {5}, .stride = {2}, .groups = 257},
      {.dims = 1, .in_channels = 33, .out_channels = 65, .kernel = {3}, .dilation = {7}},
      {.dims = 2, .in_channels = 70, .out_channels = 34, .kernel = {3, 5}, .stride = {2, 3}, .padding = {1, 2}},
      {.dims = 2, .in_channels = 96, .out_channels = 48, .kernel = {4, 4}, .stride = {2, 2}, .groups = 3},
      {.dims = 2, .in_channels = 9, .out_channels = 17, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}},
      {.dims = 3, .in_channels = 20, .out_channels = 18, .kernel = {3, 3, 3}, .stride = {2, 2, 2}},
      {.dims = 3, .in_channels = 8, .out_channels = 8, .kernel = {3, 5, 2}, .stride = {1, 2, 3}, .groups = 4},
  };
  Random random(103);
  const auto pool = tconv::make_thread_pool(2);
  int i = 0;
  for (const Layer& shape : shapes)
    for (const Layout layout : {Layout::channels_first, Layout::channels_last}) {
      Case c{.layer = shape, .batch = 2};
      c.layer.layout = layout;
      c.layer.bias = true;
      c.layer.dtype = i++ % 3 == 0 ? DType::f64 : DType::f32;
      c.input = c.layer.dims == 1   ? tconv::Extents{211, 1, 1}
                : c.layer.dims == 2 ? tconv::Extents{13, 37, 1}
                                    : tconv::Extents{5, 6, 19};
      while (multiply_adds(c) > (sanitized ? 2e6 : 2e7)) c.input[c.layer.dims - 1] /= 2;
      ASSERT_EQ(check_case(c, native_orders(c.layer), random, pool.get(), 2), "") << describe(c);
    }
}

/// Many samples of a few positions each: tiles with the batch innermost, of every dtype and layout, on either side
/// of where grad-weight turns from dot products to outer products.
TEST(Sweep, TinyImages) {
  Random random(105);
  const auto pool = tconv::make_thread_pool(2);
  for (int i = 0; i < scaled(300); ++i) {
    Case c = random_case(random, 1e4);
    Layer& layer = c.layer;
    layer.groups = random.pick({1, 1, 2});
    layer.in_channels = layer.groups * random.integer(1, 40);
    layer.out_channels = layer.groups * random.integer(1, 40);
    for (int d = 0; d < layer.dims; ++d) {
      c.input[d] = random.integer(1, layer.dims == 3 ? 2 : 4);
      layer.kernel[d] = random.integer(1, layer.dims == 3 ? 3 : 5);
      layer.stride[d] = random.integer(1, 3);
      layer.dilation[d] = random.pick({1, 1, 2});
      layer.output_padding[d] = random.integer(0, layer.stride[d] - 1);
      // At least one output must be left.
      const std::int64_t outputs = (c.input[d] - 1) * layer.stride[d] + layer.dilation[d] * (layer.kernel[d] - 1) +
                                   layer.output_padding[d] + 1;
      layer.padding[d] = random.integer(0, std::min<std::int64_t>(2, (outputs - 1) / 2));
    }
    c.batch = random.integer(50, 300);
    while (c.batch > 1 && multiply_adds(c) > (sanitized ? 2e5 : 4e6)) c.batch /= 2;
    const Orders orders = i % 3 == 0 ? random_orders(random) : native_orders(layer);
    ASSERT_EQ(check_case(c, orders, random, pool.get(), 2), "") << "case " << i << ": " << describe(c);
  }
}

/// Outputs many times the inputs, or small images: forward multiplies by inputs, in tiles of whole samples. Of
/// every dtype, with outputs cut off by padding, and several tiles of several samples.
TEST(Sweep, ProductsByInputs) {
  Random random(106);
  const auto pool = tconv::make_thread_pool(2);
  int by_inputs = 0;
  constexpr int count = scaled(150);
  for (int i = 0; i < count; ++i) {
    Case c = random_case(random, 1e4);
    Layer& layer = c.layer;
    layer.groups = random.pick({1, 1, 2});
    layer.in_channels = layer.groups * random.integer(40, 150);
    layer.out_channels = layer.groups * random.integer(8, 60);
    for (int d = 0; d < layer.dims; ++d) {
      c.input[d] = random.integer(1, layer.dims == 3 ? 3 : 7);
      layer.kernel[d] = random.integer(layer.dims == 3 ? 2 : 4, layer.dims == 3 ? 3 : 6);
      layer.stride[d] = random.pick({1, 1, 2});
      layer.dilation[d] = random.integer(1, 3);
      layer.output_padding[d] = random.integer(0, std::max(layer.stride[d], layer.dilation[d]) - 1);
      const std::int64_t outputs = (c.input[d] - 1) * layer.stride[d] + layer.dilation[d] * (layer.kernel[d] - 1) +
                                   layer.output_padding[d] + 1;
      layer.padding[d] =
          random.pick({std::int64_t(0), random.integer(0, std::min<std::int64_t>(3, (outputs - 1) / 2))});
    }
    c.batch = random.integer(1, 12);
    while (c.batch > 1 && multiply_adds(c) > (sanitized ? 4e5 : 1e7)) c.batch /= 2;
    const auto binding = tconv::cpu::make_plan(layer)->bind(tconv::shape_of(layer, c.batch, c.input));
    by_inputs += binding->kernel_name(tconv::Pass::forward).find("inputs_") != std::string::npos;
    const Orders orders = i % 3 == 0 ? random_orders(random) : native_orders(layer);
    ASSERT_EQ(check_case(c, orders, random, pool.get(), 2), "") << "case " << i << ": " << describe(c);
  }
  EXPECT_GT(by_inputs, count / 16);  // more with wider vectors
}

/// One long row: positions beyond any tile, with few channels, where vector loops and their tails matter.
TEST(Sweep, LongRows) {
  Random random(104);
  for (const std::int64_t length : {1000, 4095, 4096, 4097, 30011}) {
    for (const std::int64_t stride : {1, 2, 5}) {
      Case c{.layer = {.in_channels = 2, .out_channels = 1, .kernel = {6}, .stride = {stride}, .padding = {2}},
             .batch = 1,
             .input = {length}};
      ASSERT_EQ(check_case(c, native_orders(c.layer), random, nullptr, 2), "") << describe(c);
    }
  }
}

}  // namespace
