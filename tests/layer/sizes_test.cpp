// Output sizes: the formula, its inverse, its limits, and the work a layer is.
#include <gtest/gtest.h>

#include <limits>

#include "layer/layer.hpp"
#include "support/expect_refusal.hpp"

namespace {

using std::int64_t;
using tconv::Extents;
using tconv::Layer;
using testing_support::refuses;

constexpr int64_t huge = std::numeric_limits<int64_t>::max();

/// The size by counting: one past the last position any tap of any input reaches, shortened by the padding
/// on both sides, lengthened by the output padding.
int64_t counted_size(const Layer& l, int64_t input) {
  int64_t last = 0;
  for (int64_t i = 0; i < input; ++i)
    for (int64_t k = 0; k < l.kernel[0]; ++k) last = std::max(last, i * l.stride[0] + k * l.dilation[0]);
  return last + 1 - 2 * l.padding[0] + l.output_padding[0];
}

TEST(OutputSize, IsWhatTheDefinitionReaches) {
  int sizes = 0, refusals = 0;
  for (int64_t stride = 1; stride <= 4; ++stride)
    for (int64_t dilation = 1; dilation <= 4; ++dilation)
      for (int64_t kernel = 1; kernel <= 5; ++kernel)
        for (int64_t padding = 0; padding <= 4; ++padding)
          for (int64_t extra = 0; extra < std::max(stride, dilation); ++extra)
            for (int64_t input = 1; input <= 5; ++input) {
              const Layer layer{.kernel = {kernel},
                                .stride = {stride},
                                .padding = {padding},
                                .output_padding = {extra},
                                .dilation = {dilation}};
              const int64_t want = counted_size(layer, input);
              if (want >= 1) {
                ASSERT_EQ(output_size(layer, {input})[0], want);
                ++sizes;
              } else {
                ASSERT_TRUE(refuses([&] { output_size(layer, {input}); }, {"no elements", "padding"}));
                ++refusals;
              }
            }
  EXPECT_GT(sizes, 1000);
  EXPECT_GT(refusals, 100);
}

TEST(OutputSize, EachDimensionOnItsOwn) {
  const Layer layer{
      .dims = 3, .kernel = {3, 5, 7}, .stride = {1, 2, 3}, .padding = {0, 1, 2}, .dilation = {2, 1, 1}};
  const Extents want{(4 - 1) * 1 + 2 * 2 + 1, (5 - 1) * 2 - 2 + 4 + 1, (6 - 1) * 3 - 4 + 6 + 1};
  EXPECT_EQ(output_size(layer, {4, 5, 6}), want);
}

TEST(OutputSize, RefusesWhatHasNoSize) {
  EXPECT_TRUE(refuses([] { output_size(Layer{}, {0}); }, {"input size", "positive", "got 0", "dimension 0"}));
  EXPECT_TRUE(refuses([] { output_size(Layer{.dims = 2}, {3, -1}); }, {"input size", "got -1", "dimension 1"}));
  EXPECT_TRUE(refuses([] { output_size(Layer{.kernel = {3}, .padding = {2}}, {1}); },
                      {"no elements", "dimension 0", "padding 2", "kernel 3", "size -1", "less padding"}));
  EXPECT_TRUE(refuses([] { output_size(Layer{.padding = {huge}}, {1}); }, {"no elements", "padding"}));
  EXPECT_TRUE(refuses([] { output_size(Layer{.stride = {huge}}, {3}); }, {"64 bits", "stride"}));
  EXPECT_TRUE(refuses([] { output_size(Layer{}, {huge}); }, {"64 bits", "input"}));
  // The output is small, but positions inside are not: padding hides them.
  EXPECT_TRUE(refuses(
      [] {
        const int64_t far = int64_t(1) << 61;
        output_size(Layer{.stride = {far}, .padding = {far / 2}}, {2});
      },
      {"64 bits"}));
}

TEST(OutputPaddingFor, InvertsTheOutputSize) {
  for (int64_t stride = 1; stride <= 4; ++stride)
    for (int64_t dilation = 1; dilation <= 3; ++dilation)
      for (int64_t padding = 0; padding <= 3; ++padding)
        for (int64_t input = 1; input <= 4; ++input) {
          Layer layer{.kernel = {3}, .stride = {stride}, .padding = {padding}, .dilation = {dilation}};
          const int64_t smallest = counted_size(layer, input);
          for (int64_t extra = 0; extra < std::max(stride, dilation); ++extra) {
            const int64_t size = smallest + extra;
            if (size < 1) continue;
            const Extents got = output_padding_for(layer, {input}, {size});
            ASSERT_EQ(got[0], extra);
            layer.output_padding = got;
            ASSERT_EQ(output_size(layer, {input})[0], size);
          }
          layer.output_padding = {0, 0, 0};
          for (const int64_t size : {smallest - 1, smallest + std::max(stride, dilation)})
            ASSERT_TRUE(refuses([&] { output_padding_for(layer, {input}, {size}); }, {""}));
        }
}

TEST(OutputPaddingFor, SaysWhatIsReachable) {
  const Layer layer{.kernel = {4}, .stride = {2}, .padding = {1}};
  EXPECT_TRUE(refuses([&] { output_padding_for(layer, {10}, {22}); },
                      {"output size 22", "dimension 0", "input 10", "20 to 21"}));
  EXPECT_TRUE(refuses([&] { output_padding_for(layer, {0}, {22}); }, {"input size", "got 0"}));
}

TEST(OutputPaddingFor, IgnoresTheLayersOwn) {
  Layer layer{.kernel = {4}, .stride = {2}, .padding = {1}};
  layer.output_padding = {99};
  EXPECT_EQ(output_padding_for(layer, {10}, {21})[0], 1);
}

TEST(ShapeOf, IsCanonical) {
  const Layer layer{.dims = 2, .in_channels = 2, .out_channels = 3, .kernel = {3, 1}, .stride = {2, 5}};
  const tconv::Shape shape = shape_of(layer, 7, {4, 6});
  EXPECT_EQ(shape.batch, 7);
  EXPECT_EQ(shape.input, (Extents{1, 4, 6}));
  EXPECT_EQ(shape.output, (Extents{1, 9, 26}));
  const tconv::Geometry g = geometry_of(layer);
  EXPECT_EQ(g.kernel, (Extents{1, 3, 1}));
  EXPECT_EQ(g.stride, (Extents{1, 2, 5}));
  EXPECT_EQ(g.padding, (Extents{0, 0, 0}));
  EXPECT_EQ(g.dilation, (Extents{1, 1, 1}));
  EXPECT_EQ(g.taps(), 3);
}

TEST(ShapeOf, ChecksBatchAndTotals) {
  EXPECT_EQ(shape_of(Layer{}, 0, {4}).batch, 0);
  EXPECT_TRUE(refuses([] { shape_of(Layer{}, -1, {4}); }, {"batch", "not be negative", "got -1"}));
  const int64_t many = int64_t(1) << 32;
  EXPECT_TRUE(refuses([&] { shape_of(Layer{.in_channels = many}, many, {2}); }, {"input", "too many elements"}));
  EXPECT_TRUE(refuses([&] { shape_of(Layer{.stride = {many}}, many, {3}); }, {"output", "too many elements"}));
}

TEST(Work, CountsEveryTapOfEveryInput) {
  const Layer layer{.dims = 2,
                    .in_channels = 4,
                    .out_channels = 6,
                    .kernel = {3, 2},
                    .groups = 2,
                    .bias = true,
                    .dtype = tconv::DType::f64};
  const tconv::Work work = tconv::work(layer, 5, {7, 8});
  const double macs = 5.0 * 4 * 7 * 8 * (6 / 2) * 3 * 2;
  EXPECT_EQ(work.flops, 2 * macs);
  EXPECT_EQ(work.bytes, 8 * (5.0 * 4 * 7 * 8 + 5.0 * 6 * 9 * 9 + 4.0 * 3 * 3 * 2 + 6));
}

}  // namespace
