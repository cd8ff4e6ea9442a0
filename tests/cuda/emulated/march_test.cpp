// The march kernel: slices of x one after the other, along the depth or, of two dimensions, the height.
#include "emulated/check.hpp"

namespace tconv::cuda::emulated {
namespace {

using std::int64_t;

TEST_F(Emulation, Marches) {
  struct Marched {
    int dims, in, out;
    Extents input, kernel, padding, dilation;
    DType dtype;
    Precision precision;
    int64_t batch, groups;
    double x_size = 1;
  };
  const Marched layers[] = {
      {3, 48, 24, {5, 6, 9}, {3, 3, 3}, {0, 0, 0}, {1, 1, 1}, DType::f32, Precision::tf32, 2, 1},
      {3, 32, 16, {4, 7, 20}, {3, 5, 7}, {1, 2, 3}, {1, 1, 1}, DType::f16, Precision::fp32, 1, 1},
      {3, 20, 40, {6, 5, 11}, {2, 3, 2}, {1, 0, 1}, {1, 2, 1}, DType::f32, Precision::fp32, 1, 1},
      {2, 32, 32, {9, 131}, {3, 3}, {0, 0}, {1, 1}, DType::bf16, Precision::fp32, 2, 1},
      {2, 64, 64, {12, 70}, {3, 7}, {1, 3}, {1, 1}, DType::f32, Precision::tf32, 1, 1},
      {2, 16, 130, {8, 66}, {3, 2}, {2, 0}, {1, 3}, DType::f16, Precision::fp32, 1, 1},
      // Padding along the depth beyond the reach of the first slice; groups; numbers that are large or small.
      {3, 32, 8, {8, 3, 17}, {5, 1, 3}, {4, 0, 1}, {1, 1, 1}, DType::f32, Precision::fp32, 1, 2, 1e30},
      {2, 48, 24, {20, 40}, {4, 3}, {3, 1}, {1, 1}, DType::f32, Precision::tf32, 3, 2, 1e-30},
      {3, 16, 24, {30, 7, 12}, {3, 2, 3}, {1, 1, 1}, {1, 1, 1}, DType::f32, Precision::fp32, 1, 1},
      // Rows of several boxes, which overlap.
      {2, 16, 24, {4, 141}, {2, 3}, {0, 1}, {1, 1}, DType::f16, Precision::fp32, 1, 1},
      {2, 16, 32, {5, 141}, {2, 3}, {0, 1}, {1, 1}, DType::f32, Precision::tf32, 1, 1},
  };
  int aligned = 0;
  std::mt19937 rng(3);
  set("TCONV_PREFER_MARCH", "1");
  for (const Marched& marched : layers) {
    const int64_t index = &marched - layers;
    Case c;
    Layer& l = c.layer;
    l.dims = marched.dims, l.groups = marched.groups;
    l.in_channels = marched.in * marched.groups, l.out_channels = marched.out * marched.groups;
    l.kernel = marched.kernel, l.padding = marched.padding, l.dilation = marched.dilation;
    l.dtype = marched.dtype, l.precision = marched.precision, l.bias = index % 2 == 0;
    c.input = marched.input, c.batch = marched.batch, c.x_size = marched.x_size;
    c.multiprocessors = index % 3 == 0 || index >= 9 ? 3 : 8;
    c.text = "march " + std::to_string(index);
    const std::string kernel = check(c, rng);
    EXPECT_NE(kernel.find("march"), std::string::npos) << c.text << " [" << kernel << "]";
    aligned += kernel.find("_aligned") != std::string::npos;
  }
  EXPECT_GE(aligned, 2);
  print_families();
}

/// A layer of three dimensions with one tap along the depth is one of two where its depth is 1, of x and of
/// outputs: output padding may add a slice, whose rows do not follow those of the one before.
TEST_F(Emulation, MarchesUprightWhereThereIsOneSlice) {
  std::mt19937 rng(1);
  set("TCONV_PREFER_MARCH", "1");
  Case c;
  Layer& l = c.layer;
  l.dims = 3, l.in_channels = 32, l.out_channels = 16, l.dtype = DType::f16, l.kernel = {1, 3, 3};
  c.input = {1, 9, 40}, c.batch = 2, c.text = "one slice";
  EXPECT_NE(check(c, rng).find("march"), std::string::npos);
  l.dilation[0] = 2, l.output_padding[0] = 1, c.input[2] = 20, c.text = "two slices of outputs";
  EXPECT_EQ(check(c, rng).find("march"), std::string::npos);
}

}  // namespace
}  // namespace tconv::cuda::emulated
