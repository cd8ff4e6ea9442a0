// The oracle against results worked out by hand, and its gradients against the forward they belong to.
#include "reference/reference.hpp"

#include <gtest/gtest.h>

#include "support/cases.hpp"

namespace {

using tconv::Layer;
using tconv::reference::Array;
using namespace testing_support;

Array forward(const Layer& layer, std::int64_t batch, const tconv::Extents& input, const Array& x, const Array& w,
              const Array& bias = {}) {
  return tconv::reference::forward(geometry_of(layer), shape_of(layer, batch, input), x, w, bias);
}

TEST(Reference, Stride1) {
  // A full convolution: [1, 2, 3] * [10, 1].
  EXPECT_EQ(forward({.kernel = {2}}, 1, {3}, {1, 2, 3}, {10, 1}), (Array{10, 21, 32, 3}));
}

TEST(Reference, StrideSpreadsTheInput) {
  EXPECT_EQ(forward({.kernel = {3}, .stride = {2}}, 1, {2}, {1, 10}, {1, 2, 3}), (Array{1, 2, 3 + 10, 20, 30}));
}

TEST(Reference, PaddingCutsBothEnds) {
  EXPECT_EQ(forward({.kernel = {3}, .stride = {2}, .padding = {1}}, 1, {2}, {1, 10}, {1, 2, 3}),
            (Array{2, 13, 20}));
}

TEST(Reference, OutputPaddingOnlyAtTheEnd) {
  // What the padding cut at the end comes back first.
  EXPECT_EQ(
      forward({.kernel = {3}, .stride = {2}, .padding = {1}, .output_padding = {1}}, 1, {2}, {1, 10}, {1, 2, 3}),
      (Array{2, 13, 20, 30}));
  EXPECT_EQ(forward({.kernel = {1}, .stride = {3}, .output_padding = {2}}, 1, {2}, {1, 10}, {7}),
            (Array{7, 0, 0, 70, 0, 0}));
}

TEST(Reference, DilationSpreadsTheKernel) {
  EXPECT_EQ(forward({.kernel = {2}, .dilation = {3}}, 1, {2}, {1, 10}, {1, 2}), (Array{1, 10, 0, 2, 20}));
}

TEST(Reference, BiasReachesOutputsWithoutTaps) {
  EXPECT_EQ(forward({.out_channels = 2, .stride = {2}}, 2, {2}, {1, 2, 3, 4}, {10, 20}, {5, 6}),
            (Array{15, 5, 25, 26, 6, 46, 35, 5, 45, 66, 6, 86}));
}

TEST(Reference, ChannelsAndGroups) {
  // Two groups of two inputs and one output; weights are [in][out / groups][kernel].
  const Layer layer{.in_channels = 4, .out_channels = 2, .groups = 2};
  EXPECT_EQ(forward(layer, 1, {1}, {1, 2, 3, 4}, {10, 100, 1000, 10000}), (Array{210, 43000}));
}

TEST(Reference, TwoDimensions) {
  const Layer layer{.dims = 2, .kernel = {1, 2}, .stride = {2, 1}};
  EXPECT_EQ(forward(layer, 1, {2, 2}, {1, 2, 3, 4}, {1, 10}), (Array{1, 12, 20, 0, 0, 0, 3, 34, 40}));
}

TEST(Reference, ThreeDimensions) {
  const Layer layer{.dims = 3, .kernel = {2, 1, 1}, .padding = {0, 0, 0}};
  EXPECT_EQ(forward(layer, 1, {1, 1, 2}, {1, 2}, {1, 10}), (Array{1, 2, 10, 20}));
}

TEST(Reference, GradientsByHand) {
  const Layer layer{.kernel = {3}, .stride = {2}, .padding = {1}};
  const auto g = geometry_of(layer);
  const auto shape = shape_of(layer, 1, {2});
  // y0 = 2·x0, y1 = 3·x0 + 1·x1, y2 = 2·x1 for w = [1, 2, 3].
  EXPECT_EQ(tconv::reference::grad_input(g, shape, {1, 10, 100}, {1, 2, 3}), (Array{2 + 30, 10 + 200}));
  EXPECT_EQ(tconv::reference::grad_weight(g, shape, {5, 7}, {1, 10, 100}), (Array{70, 5 + 700, 50}));
  EXPECT_EQ(tconv::reference::grad_bias(g, shape, {1, 10, 100}), (Array{111}));
}

TEST(Reference, GradientsAreAdjoints) {
  const auto dot = [](const Array& a, const Array& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  Random random(11);
  for (int round = 0; round < 200; ++round) {
    const Case c = random_case(random, 2e4);
    const auto g = geometry_of(c.layer);
    const auto shape = shape_of(c.layer, c.batch, c.input);
    // Small integers make every sum exact, so the identities hold exactly.
    const auto integers = [&](const Sizes& sizes) {
      std::int64_t count = 1;
      for (const auto size : sizes) count *= size;
      Array values(static_cast<std::size_t>(count));
      for (double& v : values) v = double(random.integer(-4, 4));
      return values;
    };
    const Array x = integers(input_sizes(c)), w = integers(weight_sizes(c)), gy = integers(output_sizes(c));
    const Array bias = integers({c.layer.out_channels});
    const double forward = dot(tconv::reference::forward(g, shape, x, w, {}), gy);
    ASSERT_EQ(forward, dot(x, tconv::reference::grad_input(g, shape, gy, w))) << describe(c);
    ASSERT_EQ(forward, dot(w, tconv::reference::grad_weight(g, shape, x, gy))) << describe(c);
    ASSERT_EQ(dot(tconv::reference::forward(g, shape, x, w, bias), gy) - forward,
              dot(bias, tconv::reference::grad_bias(g, shape, gy)))
        << describe(c);
  }
}

}  // namespace
