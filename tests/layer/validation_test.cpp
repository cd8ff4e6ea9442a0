// What a layer may be: every refusal, with its argument, its value and what would be right.
#include <gtest/gtest.h>

#include <limits>

#include "support/expect_refusal.hpp"
#include "tconv/tconv.hpp"

namespace {

using tconv::Layer;
using testing_support::refuses;

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

Layer valid() {
  return Layer{.dims = 2,
               .in_channels = 6,
               .out_channels = 4,
               .kernel = {3, 4},
               .stride = {2, 3},
               .padding = {1, 0},
               .output_padding = {1, 2},
               .dilation = {1, 2},
               .groups = 2};
}

/// The valid layer with one thing changed.
template <class Change>
auto validating(const Change& change) {
  return [change] {
    Layer layer = valid();
    change(layer);
    validate(layer);
  };
}

TEST(Validation, TakesValidLayers) {
  EXPECT_NO_THROW(validate(Layer{}));
  EXPECT_NO_THROW(validate(valid()));
  Layer depthwise = valid();
  depthwise.in_channels = depthwise.out_channels = depthwise.groups = 32;
  EXPECT_NO_THROW(validate(depthwise));
}

TEST(Validation, IgnoresEntriesBeyondDims) {
  Layer layer;
  layer.kernel = {3, -1, 0};
  layer.stride = {1, 0, -5};
  layer.padding = {0, -2, -2};
  layer.dilation = {1, 0, 0};
  layer.output_padding = {0, -1, 9};
  EXPECT_NO_THROW(validate(layer));
}

TEST(Validation, Dims) {
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.dims = 0; }), {"dims", "1, 2 or 3", "got 0"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.dims = 4; }), {"dims", "1, 2 or 3", "got 4"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.dims = -1; }), {"dims", "got -1"}));
}

TEST(Validation, ChannelsAndGroups) {
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.groups = 0; }), {"groups", "positive", "got 0"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.groups = -3; }), {"groups", "positive", "got -3"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.in_channels = 0; }), {"in_channels", "positive", "got 0"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.out_channels = -4; }), {"out_channels", "positive", "got -4"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.in_channels = 7; }),
                      {"in_channels", "divisible by groups", "7 channels", "2 groups"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.out_channels = 5; }),
                      {"out_channels", "divisible by groups", "5 channels", "2 groups"}));
}

TEST(Validation, ExtentsNameTheDimension) {
  EXPECT_TRUE(
      refuses(validating([](Layer& l) { l.kernel[1] = 0; }), {"kernel", "positive", "got 0", "dimension 1"}));
  EXPECT_TRUE(
      refuses(validating([](Layer& l) { l.stride[1] = 0; }), {"stride", "positive", "got 0", "dimension 1"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.dilation[0] = -2; }),
                      {"dilation", "positive", "got -2", "dimension 0"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.padding[0] = -1; }),
                      {"padding", "not be negative", "got -1", "dimension 0"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.output_padding[1] = -1; }),
                      {"output_padding", "not be negative", "got -1", "dimension 1"}));
}

TEST(Validation, OutputPaddingIsSmallerThanStrideOrDilation) {
  EXPECT_TRUE(refuses(
      validating([](Layer& l) { l.output_padding[0] = 2; }),
      {"output_padding", "smaller than stride or dilation", "got 2", "dimension 0", "stride 2", "dilation 1"}));
  EXPECT_NO_THROW(validating([](Layer& l) {
    l.dilation[0] = 5;
    l.output_padding[0] = 4;
  })());
}

TEST(Validation, Enumerations) {
  EXPECT_TRUE(
      refuses(validating([](Layer& l) { l.dtype = tconv::DType(4); }), {"dtype", "f32, f64, f16 or bf16", "4"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.precision = tconv::Precision(2); }),
                      {"precision", "fp32 or tf32", "2"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) { l.layout = tconv::Layout(9); }),
                      {"layout", "channels_first or channels_last", "9"}));
}

TEST(Validation, Overflow) {
  EXPECT_TRUE(refuses(validating([](Layer& l) {
                        l.kernel[0] = huge;
                        l.dilation[0] = huge;
                      }),
                      {"kernel", "dimension 0", "64 bits"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) {
                        l.in_channels = l.out_channels = std::int64_t(1) << 40;
                        l.groups = 1;
                      }),
                      {"weight", "too many elements"}));
  EXPECT_TRUE(refuses(validating([](Layer& l) {
                        l.kernel = {std::int64_t(1) << 31, std::int64_t(1) << 31};
                      }),
                      {"weight", "too many elements"}));
}

TEST(Validation, ErrorsAreTyped) {
  try {
    validate(Layer{.groups = 0});
    FAIL();
  } catch (const tconv::Error& error) {
    EXPECT_EQ(error.code(), tconv::ErrorCode::invalid_argument);
  }
}

}  // namespace
