// Layers as kernels see them: every product of an input and a weight must be one of the view, at the same output.
#include "cuda/layer_view.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

namespace tconv::cuda {
namespace {

using std::int64_t;

using Product = std::tuple<int64_t, int64_t, int64_t>;  // output, input, tap, along the width

std::set<Product> products_of(const Geometry& g, const Shape& s) {
  std::set<Product> all;
  for (int64_t q = 0; q < s.input[2]; ++q)
    for (int64_t k = 0; k < g.kernel[2]; ++k)
      if (const int64_t o = q * g.stride[2] - g.padding[2] + k * g.dilation[2]; o >= 0 && o < s.output[2])
        all.insert({o, q, k});
  return all;
}

/// The same of a view, as the pack kernel and the epilogue count them.
std::set<Product> products_seen(const Geometry& g, const Shape& s, const device::ChannelPhases& phases) {
  const Geometry v = seen(View::channel_phases, g, phases);
  const Shape shape = seen(View::channel_phases, s, phases);
  std::set<Product> all;
  for (int64_t q = 0; q < shape.input[2]; ++q)
    for (int64_t shift = 0; shift < v.kernel[2]; ++shift)
      for (int channel = 0; channel < phases.count; ++channel) {
        const int64_t tap = shift * phases.count + channel + phases.first_tap;
        const int64_t position = q + shift - v.padding[2];
        const int64_t o = position * phases.count + channel - phases.lead;
        if (position < 0 || position >= shape.output[2] || o < 0 || o >= s.output[2] || tap < 0 ||
            tap >= phases.taps)
          continue;
        EXPECT_TRUE(all.insert({o, q, tap}).second) << "twice";
      }
  return all;
}

TEST(LayerView, OutputsAsChannelsHaveTheSameProducts) {
  std::mt19937 rng(3);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  int whole = 0, begun = 0;
  for (int round = 0; round < 600; ++round) {
    Geometry g;
    g.group_in = 32, g.group_out = pick(1, 3);
    g.stride[2] = pick(2, 40), g.kernel[2] = pick(1, 130), g.padding[2] = pick(0, int(g.kernel[2]) - 1);
    Shape s;
    s.batch = 1, s.input[2] = pick(1, 9);
    s.output[2] = (s.input[2] - 1) * g.stride[2] - 2 * g.padding[2] + g.kernel[2] + pick(0, int(g.stride[2]) - 1);
    if (s.output[2] < 1) continue;
    const int bytes = round % 2 ? 2 : 4;
    const device::ChannelPhases phases = channel_phases_of(g, bytes, true);
    ASSERT_EQ(phases.count, g.stride[2]);
    ASSERT_EQ(seen(View::channel_phases, g, phases).group_out, g.group_out * g.stride[2]);
    ASSERT_EQ(products_seen(g, s, phases), products_of(g, s))
        << "stride " << g.stride[2] << " kernel " << g.kernel[2] << " padding " << g.padding[2] << " inputs "
        << s.input[2] << " outputs " << s.output[2];
    // Either vectors begin with the row, or positions do.
    ASSERT_TRUE(phases.lead % (16 / bytes) == 0 && (phases.lead == 0 || phases.first_tap == 0));
    (phases.first_tap < 0 ? begun : whole)++;
  }
  EXPECT_GT(whole, 50);
  EXPECT_GT(begun, 50);
}

TEST(LayerView, WhichLayersHaveOutputsAsChannels) {
  const auto count = [](int64_t out, int64_t stride, int64_t dilation) {
    Geometry g;
    g.group_in = 64, g.group_out = out, g.stride[2] = stride, g.kernel[2] = 2 * stride, g.dilation[2] = dilation;
    return channel_phases_of(g, 2).count;
  };
  EXPECT_EQ(count(80, 256, 1), 256);
  EXPECT_EQ(count(64, 17, 1), 17);
  EXPECT_EQ(count(64, 16, 1), 1) << "a line of the panel kernel";
  EXPECT_EQ(count(1, 8, 1), 8) << "too few rows for it";
  EXPECT_EQ(count(1, 3, 1), 1) << "too few to fill vectors";
  EXPECT_EQ(count(80, 256, 3), 1) << "taps of a phase are not a stride apart";
}

/// What may be stored at once divides everything that outputs are apart.
TEST(LayerView, VectorsOfOutputs) {
  Access access;
  access.y_row_vector = 8;
  Shape s;
  s.output[2] = 1024;
  const auto vector = [&](const device::ChannelPhases& phases) {
    return seen(View::channel_phases, access, s, phases).y_channels;
  };
  EXPECT_EQ(vector({.count = 256}), 8);
  EXPECT_EQ(vector({.count = 20}), 4);
  EXPECT_EQ(vector({.count = 16, .lead = 2}), 2);
  s.output[2] = 1023;
  EXPECT_EQ(vector({.count = 256}), 1);
}

}  // namespace
}  // namespace tconv::cuda
