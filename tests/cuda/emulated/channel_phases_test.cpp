// Outputs along the width as channels: large strides, and few channels.
#include "emulated/check.hpp"

namespace tconv::cuda::emulated {
namespace {

using enum DType;
using enum Precision;

struct Strided {
  int dims, in, out, groups;
  Extents input, kernel, stride, padding, output_padding;
  DType dtype;
  Precision precision;
  const char* prefer;  // TCONV_PREFER_PANELS; phases where the price may not be for them
};

Case case_of_strided(const Strided& strided, std::ptrdiff_t index) {
  struct {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
  } const listed{strided.dims,   strided.in,    strided.out,       strided.input,         strided.kernel,
                 strided.stride, strided.dtype, strided.precision, Layout::channels_first};
  Case c = case_of(listed, index);
  c.layer.groups = strided.groups;
  for (std::size_t d = 0; d < std::size_t(strided.dims); ++d)
    c.layer.padding[d] = strided.padding[d], c.layer.output_padding[d] = strided.output_padding[d];
  return c;
}

/// Layers that have more phases than any other plan has rows, or few channels.
TEST_F(Emulation, OutputsAsChannels) {
  const Strided layers[] = {
      // The last layers of vocoders: kernels of four strides; and upsampling of spectra.
      {1, 34, 1, 1, {37}, {128}, {32}, {0}, {0}, f32, fp32, "1"},
      {1, 40, 3, 1, {21}, {256}, {64}, {96}, {0}, f16, fp32, "1"},
      {1, 24, 5, 1, {9}, {600}, {256}, {0}, {0}, f32, tf32, "1"},
      // Kernels that are no multiple of the stride, or smaller: some phases have no tap.
      {1, 48, 2, 1, {40}, {45}, {20}, {8}, {0}, bf16, fp32, "1"},
      {1, 40, 2, 1, {60}, {24}, {32}, {0}, {8}, f16, fp32, "1"},
      {1, 40, 1, 1, {32}, {24}, {24}, {0}, {0}, f16, fp32, "mapped"},
      // Paddings that leave vectors whole, or begin positions with output 0; and rows that are no vectors.
      {1, 32, 3, 1, {33}, {40}, {20}, {10}, {0}, f32, fp32, "turned"},
      {1, 33, 2, 1, {50}, {51}, {17}, {5}, {3}, f16, fp32, "1"},
      {1, 32, 2, 1, {19}, {72}, {24}, {16}, {1}, f16, fp32, "turned"},
      // Groups, and two dimensions, with strides of their own along the height.
      {1, 64, 6, 2, {27}, {40}, {20}, {10}, {0}, f16, fp32, "1"},
      {2, 40, 2, 1, {3, 17}, {3, 64}, {2, 32}, {1, 16}, {1, 0}, f16, fp32, "1"},
      {2, 24, 3, 1, {4, 5}, {20, 20}, {20, 20}, {0, 0}, {0, 0}, f32, tf32, "1"},
      // Few channels, whose positions are several inputs.
      {1, 64, 1, 1, {301}, {16}, {8}, {0}, {0}, f16, fp32, "1"},
      {1, 48, 1, 1, {200}, {25}, {4}, {11}, {1}, f32, tf32, "1"},
      {2, 48, 1, 1, {3, 60}, {9, 9}, {4, 4}, {4, 4}, {3, 3}, f32, fp32, "phases"},
      {2, 64, 3, 1, {5, 33}, {4, 4}, {4, 4}, {0, 0}, {0, 0}, f16, fp32, "phases"},
  };
  std::mt19937 rng(41);
  for (const Strided& strided : layers) {
    Case c = case_of_strided(strided, &strided - layers);
    set("TCONV_PREFER_PANELS", strided.prefer);
    const std::string kernel = check(c, rng);
    const auto width = std::size_t(strided.dims - 1);
    EXPECT_NE(kernel.find("_phases" + std::to_string(strided.stride[width])), std::string::npos)
        << c.text << " " << kernel;
    if (std::string(strided.prefer) != "1" && std::string(strided.prefer) != "phases") {
      EXPECT_NE(kernel.find(std::string("_") + strided.prefer), std::string::npos) << c.text << " " << kernel;
    }
  }
}

/// Numbers of very different size, whose scales are those of a channel of the layer.
TEST_F(Emulation, OutputsAsChannelsOfUnevenWeights) {
  std::mt19937 rng(42);
  for (const Precision precision : {fp32, tf32}) {
    Case c = case_of_strided({1, 40, 4, 1, {40}, {64}, {32}, {16}, {0}, f32, precision, ""}, 0);
    c.w_size = 1e-3, c.w_uneven = 1e3;
    set("TCONV_PREFER_PANELS", "1");
    set("TCONV_PREFER_HALVES", "1");
    const std::string kernel = check(c, rng);
    EXPECT_NE(kernel.find("_phases32"), std::string::npos) << kernel;
    EXPECT_NE(kernel.find("_hal"), std::string::npos) << kernel;
  }
}

}  // namespace
}  // namespace tconv::cuda::emulated
