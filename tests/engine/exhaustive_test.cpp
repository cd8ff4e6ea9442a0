// Every small layer of one dimension: the phase plan and the engine agree with the oracle in fp64.
#include <gtest/gtest.h>

#include <cmath>

#include "layer/phases.hpp"
#include "reference/reference.hpp"
#include "support/cases.hpp"

namespace {

using namespace testing_support;
using std::int64_t;
using tconv::Layer;

/// Every stride 1–5 × dilation 1–4 × kernel 1–6 × padding 0–4 × legal output_padding × length 1–7 whose output
/// is not empty.
template <class Visit>
int for_each_layer(const Visit& visit) {
  int count = 0;
  for (int64_t stride = 1; stride <= 5; ++stride)
    for (int64_t dilation = 1; dilation <= 4; ++dilation)
      for (int64_t kernel = 1; kernel <= 6; ++kernel)
        for (int64_t padding = 0; padding <= 4; ++padding)
          for (int64_t extra = 0; extra < std::max(stride, dilation); ++extra)
            for (int64_t length = 1; length <= 7; ++length) {
              const int64_t size = (length - 1) * stride - 2 * padding + dilation * (kernel - 1) + extra + 1;
              if (size < 1) continue;
              Case c;
              c.layer.kernel = {kernel};
              c.layer.stride = {stride};
              c.layer.padding = {padding};
              c.layer.output_padding = {extra};
              c.layer.dilation = {dilation};
              c.layer.dtype = tconv::DType::f64;
              c.input = {length};
              visit(c);
              ++count;
            }
  return count;
}

constexpr int layers = 13'743;  // counted once; a loop that got lost would make the tests meaningless

TEST(Exhaustive, PhasePlanComputesTheForward) {
  Random random(1);
  const int count = for_each_layer([&](const Case& c) {
    const int64_t kernel = c.layer.kernel[0], stride = c.layer.stride[0], padding = c.layer.padding[0];
    const int64_t input = c.input[0], output = output_size(c.layer, c.input)[0];
    Operands operands{
        .x = Values(std::size_t(input)), .weight = Values(std::size_t(kernel)), .bias = {}, .gy = {}};
    for (Values* values : {&operands.x, &operands.weight})
      for (double& v : *values) v = random.real();
    Values y(static_cast<std::size_t>(output), 0.0);
    for (const tconv::Phase& phase : tconv::phases_of(kernel, stride, c.layer.dilation[0])) {
      const tconv::Range range = tconv::phase_range(phase.r, stride, padding, output);
      for (int64_t q = range.begin; q < range.end; ++q)
        for (const tconv::Tap& tap : phase.taps)
          if (q - tap.shift >= 0 && q - tap.shift < input)
            y.at(std::size_t(q * stride + phase.r - padding)) +=
                operands.weight[std::size_t(tap.k)] * operands.x[std::size_t(q - tap.shift)];
    }
    ASSERT_EQ(compare("y", c.layer.dtype, y, truth(c, tconv::Pass::forward, operands)), "") << describe(c);
  });
  EXPECT_EQ(count, layers);
}

TEST(Exhaustive, MirrorTapsComputeTheGradient) {
  Random random(2);
  for_each_layer([&](const Case& c) {
    const int64_t kernel = c.layer.kernel[0], stride = c.layer.stride[0], padding = c.layer.padding[0];
    const int64_t input = c.input[0], output = output_size(c.layer, c.input)[0];
    Operands operands{
        .x = {}, .weight = Values(std::size_t(kernel)), .bias = {}, .gy = Values(std::size_t(output))};
    for (Values* values : {&operands.gy, &operands.weight})
      for (double& v : *values) v = random.real();
    Values gx(static_cast<std::size_t>(input), 0.0);
    for (int64_t i = 0; i < input; ++i)
      for (int64_t k = 0; k < kernel; ++k) {
        const tconv::MirrorTap tap = tconv::mirror_tap(k, stride, c.layer.dilation[0]);
        const int64_t o = (i + tap.shift) * stride + tap.r - padding;
        if (o >= 0 && o < output)
          gx[std::size_t(i)] += operands.weight[std::size_t(k)] * operands.gy[std::size_t(o)];
      }
    ASSERT_EQ(compare("gx", c.layer.dtype, gx, truth(c, tconv::Pass::grad_input, operands)), "") << describe(c);
  });
}

/// The engine, with a few channels so that nothing depends on there being one.
void engine_agrees(tconv::Layout layout, int64_t in_channels, int64_t out_channels, int64_t groups) {
  Random random(3);
  const auto pool = tconv::make_thread_pool(2);
  const int count = for_each_layer([&](Case c) {
    c.layer.layout = layout;
    c.layer.in_channels = in_channels;
    c.layer.out_channels = out_channels;
    c.layer.groups = groups;
    c.layer.bias = c.input[0] % 2 == 0;
    c.batch = 2;
    ASSERT_EQ(check_case(c, native_orders(c.layer), random, pool.get(), 2), "") << describe(c);
  });
  EXPECT_EQ(count, layers);
}

TEST(Exhaustive, EngineChannelsFirst) {
  engine_agrees(tconv::Layout::channels_first, 3, 2, 1);
}

TEST(Exhaustive, EngineChannelsLast) {
  engine_agrees(tconv::Layout::channels_last, 2, 3, 1);
}

TEST(Exhaustive, EngineDepthwise) {
  engine_agrees(tconv::Layout::channels_first, 3, 3, 3);
}

}  // namespace
