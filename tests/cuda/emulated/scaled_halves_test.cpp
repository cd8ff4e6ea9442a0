// Numbers of 32 bits as scaled fp16 ones.
#include "emulated/check.hpp"

namespace tconv::cuda::emulated {
namespace {

/// Halves that are scaled: numbers of any size, output channels of different sizes, channels of x of different
/// sizes, and one infinity, which must not be felt where it is not read.
void check_scaled_halves(Emulation& test, Precision precision) {
  struct Halves {
    int dims, in, out;
    Extents input, kernel, stride;
    Layout layout;
    const char* wanted;
    double x_size, w_size, w_uneven;
    bool infinite;
    int inputs;  // of a position
    double x_step = 1;
  };
  using enum Layout;
  const Halves layers[] = {
      {2, 24, 64, {6, 40}, {3, 3}, {1, 1}, channels_first, "1", 1, 1, 1, false, 1},
      {2, 32, 64, {5, 41}, {3, 3}, {1, 1}, channels_first, "joined", 1e30, 1e-25, 0.5, false, 1},
      {1, 128, 64, {301}, {8}, {2}, channels_first, "turns", 1e-32, 1e30, 1, true, 1},
      {2, 48, 32, {4, 36}, {3, 4}, {1, 2}, channels_last, "1", 3e-39, 1e20, 2, false, 1},
      {3, 32, 64, {3, 4, 20}, {2, 3, 3}, {1, 1, 1}, channels_last, "2", 1, 1e-3, 0.7, true, 1},
      {2, 96, 64, {5, 6}, {4, 4}, {2, 2}, channels_first, "turned", 1e-20, 1e-10, 1, true, 1},
      {1, 128, 64, {64}, {8}, {4}, channels_first, "turned", 1e20, 1e-30, 0.5, false, 1},
      {2, 64, 256, {4, 7}, {3, 3}, {1, 1}, channels_last, "turned", 1, 1, 0.8, true, 1},
      {2, 32, 32, {4, 120}, {3, 3}, {1, 1}, channels_first, "1", 1, 1e-38, 1, false, 2},
      {2, 64, 16, {3, 64}, {2, 5}, {1, 1}, channels_last, "1", 1e-3, 1, 3, false, 4},
      // Products near the smallest and the largest numbers.
      {2, 32, 64, {5, 41}, {3, 3}, {1, 1}, channels_first, "1", 1e-19, 1e-18, 1, false, 1},
      {2, 32, 64, {5, 41}, {3, 3}, {1, 1}, channels_first, "joined", 1e36, 1, 0.9, false, 1},
      {1, 128, 64, {100}, {4}, {1}, channels_first, "1", 1e17, 1e19, 1, false, 1},
      // Scales that change from chunk to chunk, to larger numbers and to smaller ones.
      {1, 64, 64, {200}, {5}, {1}, channels_first, "1", 1e-3, 1, 1, false, 1, 1e6},
      {1, 64, 64, {200}, {5}, {1}, channels_first, "1", 1e3, 1, 1, false, 1, 1e-5},
      {2, 64, 64, {5, 64}, {3, 3}, {1, 1}, channels_last, "2", 1e-12, 1, 1, false, 1, 1e9},
      {1, 128, 64, {64}, {8}, {4}, channels_first, "turned", 1e-8, 1, 1, false, 1, 1e10},
      {1, 128, 64, {64}, {8}, {4}, channels_first, "turned", 1e8, 1, 1, false, 1, 1e-10},
      {1, 128, 64, {64}, {8}, {4}, channels_first, "split", 1e8, 1, 1, false, 1, 1e-10},
  };
  std::mt19937 rng(5);
  test.set("TCONV_PREFER_HALVES", "1");
  int count = 0;
  for (const Halves& halves : layers) {
    Case c;
    Layer& l = c.layer;
    l.precision = precision;
    l.dims = halves.dims, l.in_channels = halves.in, l.out_channels = halves.out, l.layout = halves.layout;
    l.kernel = halves.kernel, l.stride = halves.stride, c.input = halves.input;
    for (std::size_t d = 0; d < std::size_t(l.dims); ++d) l.padding[d] = 1;
    for (std::size_t d = std::size_t(l.dims); d < 3; ++d) l.kernel[d] = l.stride[d] = c.input[d] = 1;
    c.batch = 2,
    c.text = "layer " + std::to_string(&halves - layers) + (l.precision == Precision::tf32 ? " TF32" : "");
    c.x_step = halves.x_step, c.x_size = halves.x_size, c.w_size = halves.w_size, c.w_uneven = halves.w_uneven,
    c.infinite = halves.infinite;
    test.set("TCONV_PREFER_PANELS", halves.wanted);
    test.set("TCONV_X_PHASES", std::to_string(halves.inputs));
    if (halves.wanted == std::string_view("split")) c.multiprocessors = 40;
    test.check(c, rng);
    EXPECT_EQ(test.families["panel of halves"], ++count) << c.text;
  }
  EXPECT_EQ(test.families["turned panel"], 6);
}

/// Sums of few products lose most by operands that are split. Additions of fp32, one product after the other, lose
/// about 1.9e-8 times the square root of their number: what cuDNN loses.
TEST_F(Emulation, ScaledHalvesOfShortSums) {
  std::mt19937 rng(6);
  set("TCONV_PREFER_HALVES", "1");
  for (const int products : {16, 32, 64}) {
    Case c;
    Layer& l = c.layer;
    l.precision = Precision::fp32, l.dims = 2, l.in_channels = products, l.out_channels = 32;
    l.kernel = l.stride = {2, 2, 1}, c.input = {6, 40, 1}, c.batch = 2;
    c.text = std::to_string(products) + " products";
    const std::string kernel = check(c, rng);
    EXPECT_NE(kernel.find("_halves_"), std::string::npos) << kernel;
    EXPECT_LE(error, 1.5 * 1.9e-8 * std::sqrt(products)) << c.text << " [" << kernel << "]";
    std::printf("%4d products: error %.2g  %s\n", products, error, kernel.c_str());
  }
}

TEST_F(Emulation, ScaledHalvesOfSplitFp32) {
  check_scaled_halves(*this, Precision::fp32);
}
TEST_F(Emulation, ScaledHalvesOfRoundedTf32) {
  check_scaled_halves(*this, Precision::tf32);
}

}  // namespace
}  // namespace tconv::cuda::emulated
