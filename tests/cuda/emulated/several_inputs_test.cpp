// Positions of several inputs.
#include "emulated/check.hpp"

namespace tconv::cuda::emulated {
namespace {

/// Layers of few rows, whose positions are several inputs.
TEST_F(Emulation, PositionsOfSeveralInputs) {
  struct Few {
    int inputs;  // of a position
    int dims, in, out, groups;
    Extents input, kernel, stride, padding, dilation;
    DType dtype;
    Precision precision;
    Layout layout;
  };
  using enum DType;
  using enum Precision;
  using enum Layout;
  const Few layers[] = {
      // Rows cut into boxes, and flat ones; of even and odd length.
      {2, 2, 16, 32, 1, {3, 250}, {2, 3}, {1, 1}, {0, 0}, {1, 1}, f32, tf32, channels_first},
      {2, 2, 24, 32, 1, {4, 31}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, f16, fp32, channels_first},
      {4, 2, 16, 16, 1, {3, 501}, {2, 7}, {1, 1}, {1, 3}, {1, 1}, bf16, fp32, channels_first},
      {4, 1, 40, 16, 1, {1003}, {5}, {1}, {2}, {1}, f32, fp32, channels_first},
      {8, 1, 32, 8, 1, {900}, {7}, {1}, {0}, {1}, f32, tf32, channels_first},
      {8, 2, 32, 4, 1, {7, 40}, {3, 7}, {1, 1}, {0, 5}, {1, 1}, f16, fp32, channels_first},
      // Strided, with phases that are not even in number, and dilated, with phases that have no taps.
      {4, 2, 32, 3, 1, {16, 16}, {4, 4}, {2, 2}, {1, 1}, {1, 1}, f32, tf32, channels_first},
      {2, 2, 56, 1, 1, {5, 30}, {9, 9}, {4, 4}, {4, 4}, {1, 1}, f32, fp32, channels_first},
      {2, 1, 32, 6, 1, {333}, {9}, {3}, {4}, {1}, f16, fp32, channels_first},
      {4, 1, 48, 16, 1, {400}, {7}, {1}, {6}, {2}, f16, fp32, channels_first},
      {4, 1, 48, 16, 1, {130}, {5}, {2}, {3}, {2}, f32, tf32, channels_first},
      {8, 1, 32, 8, 1, {300}, {6}, {1}, {4}, {3}, f32, fp32, channels_first},
      // Three dimensions, groups, channels last.
      {4, 3, 16, 16, 1, {3, 4, 30}, {2, 3, 7}, {1, 1, 1}, {1, 1, 3}, {1, 1, 1}, f32, tf32, channels_first},
      {2, 3, 32, 24, 2, {2, 3, 65}, {2, 2, 4}, {1, 2, 1}, {0, 1, 2}, {1, 1, 1}, bf16, fp32, channels_first},
      {4, 2, 64, 32, 2, {4, 33}, {2, 5}, {1, 1}, {0, 1}, {1, 1}, f32, fp32, channels_last},
      {2, 2, 32, 32, 1, {3, 300}, {2, 3}, {1, 1}, {1, 1}, {1, 1}, f16, fp32, channels_last},
      {8, 2, 16, 8, 1, {5, 70}, {3, 5}, {1, 1}, {1, 2}, {1, 1}, f32, tf32, channels_last},
      {4, 3, 64, 3, 1, {3, 3, 12}, {2, 2, 4}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}, bf16, fp32, channels_last},
      {8, 2, 32, 8, 1, {4, 40}, {2, 5}, {1, 2}, {0, 1}, {1, 2}, f16, fp32, channels_last},
  };
  std::mt19937 rng(1);
  for (const Few& few : layers) {
    Case c = case_of(few, &few - layers);
    c.layer.groups = few.groups;
    for (std::size_t d = 0; d < std::size_t(few.dims); ++d)
      c.layer.padding[d] = few.padding[d], c.layer.dilation[d] = few.dilation[d];
    families.clear();
    set("TCONV_X_PHASES", std::to_string(few.inputs));
    const bool turned = (&few - layers) % 3 == 1;
    set("TCONV_PREFER_PANELS", turned ? "turned" : "1");
    check(c, rng);
    EXPECT_EQ(families["panel, " + std::to_string(few.inputs) + " inputs a position"], 1) << c.text;
    EXPECT_EQ(families["turned panel"], turned) << c.text;
  }
}

/// Layers of one and two output channels, which have enough rows for panels with many inputs a position alone.
TEST_F(Emulation, InputsOfAPositionWhereChannelsAreOneOrTwo) {
  struct Few {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    int inputs;
  };
  using enum DType;
  using enum Precision;
  using enum Layout;
  const Few layers[] = {
      {2, 24, 1, {9, 43}, {4, 4}, {2, 2}, f16, fp32, channels_first, 8},
      {2, 40, 1, {7, 30}, {3, 3}, {2, 2}, f32, tf32, channels_first, 8},
      {2, 32, 2, {6, 50}, {2, 2}, {2, 2}, bf16, fp32, channels_first, 4},
      {2, 48, 1, {5, 64}, {5, 5}, {2, 2}, f32, fp32, channels_first, 8},
  };
  std::mt19937 rng(37);
  set("TCONV_PREFER_PANELS", "1");
  for (const Few& few : layers) {
    Case c = case_of(few, &few - layers);
    for (std::size_t d = 0; d < 2; ++d) c.layer.padding[d] = few.kernel[d] > 2;
    EXPECT_EQ(inputs_of_position(check(c, rng)), few.inputs) << c.text;
  }
}

}  // namespace
}  // namespace tconv::cuda::emulated
