// Products and runs of several rows, and products in turns.
#include "emulated/check.hpp"

namespace tconv::cuda::emulated {
namespace {

/// A box of three quarters of the positions that products of warpgroup_gemm have: what lanes read beyond it is not
/// used, but must be of the same x tile, for others may be writing what lies behind.
TEST_F(Emulation, LanesBeyondTheBox) {
  std::mt19937 rng(3);
  set("TCONV_NO_HALVES", "1");
  Case c;
  Layer& l = c.layer;
  l.dims = 3, l.in_channels = 48, l.out_channels = 17, l.layout = Layout::channels_last;
  l.kernel = {3, 2, 2}, l.stride = {4, 1, 1}, l.dilation = {1, 1, 3}, l.output_padding = {1, 0, 1};
  c.input = {6, 2, 8}, c.batch = 2, c.multiprocessors = 2, c.text = "three rows of 16";
  EXPECT_NE(check(c, rng).find("warpgroup_gemm_fp32_72x1.3.16"), std::string::npos);
}

/// Layers whose products cover several rows of positions, and layers whose warpgroups multiply in turns.
TEST_F(Emulation, JoinedRowsAndTurns) {
  struct Joined {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    const char* wanted;
  };
  using enum Layout;
  const Joined layers[] = {
      {2, 24, 64, {7, 40}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_first, "joined"},
      {3, 32, 48, {3, 5, 33}, {3, 2, 3}, {1, 1, 1}, DType::f16, Precision::fp32, channels_first, "joined"},
      {2, 32, 24, {8, 39}, {3, 4}, {2, 2}, DType::bf16, Precision::fp32, channels_first, "joined"},
      {2, 48, 64, {6, 36}, {2, 3}, {1, 1}, DType::f16, Precision::fp32, channels_last, "joined"},
      {2, 16, 32, {6, 37}, {3, 4}, {1, 3}, DType::f32, Precision::fp32, channels_first, "joined"},
      {3, 16, 32, {2, 6, 34}, {2, 2, 3}, {1, 2, 2}, DType::f32, Precision::tf32, channels_last, "joined"},
      {2, 16, 20, {6, 130}, {3, 3}, {1, 1}, DType::f16, Precision::fp32, channels_first, "joined"},
      {2, 24, 64, {7, 40}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_first, "turns"},
      {1, 32, 128, {700}, {3}, {1}, DType::f16, Precision::fp32, channels_first, "turns"},
      {2, 16, 48, {9, 66}, {3, 3}, {2, 2}, DType::f32, Precision::fp32, channels_first, "turns"},
      {2, 32, 64, {12, 70}, {3, 3}, {3, 3}, DType::bf16, Precision::fp32, channels_last, "turns"},
  };
  std::mt19937 rng(3);
  for (const Joined& joined : layers) {
    set("TCONV_PREFER_PANELS", joined.wanted);
    Case c = case_of(joined, &joined - layers);
    for (std::size_t d = 0; d < std::size_t(joined.dims); ++d) c.layer.padding[d] = 1;
    check(c, rng);
  }
  print_families();
  EXPECT_GT(families["panel of joined rows"], 4);
  EXPECT_GT(families["panel in turns"], 2);
}

/// Layers that have several rows of outputs in one run: of even and odd length, with phases along the width, of
/// which some are padding, with positions that begin before a row and end behind it.
TEST_F(Emulation, RunsOfWholeRows) {
  struct Whole {
    int dims, in, out;
    Extents input, kernel, stride, padding;
    DType dtype;
    Precision precision;
    const char* inputs;  // of a position
    Layout layout = Layout::channels_first;
  };
  const Whole layers[] = {
      {2, 24, 64, {7, 40}, {3, 3}, {1, 1}, {1, 1}, DType::f32, Precision::tf32, "1"},
      {3, 32, 48, {3, 5, 33}, {3, 3, 3}, {1, 1, 1}, {1, 1, 0}, DType::f16, Precision::fp32, "1"},
      {2, 16, 20, {9, 31}, {3, 4}, {1, 1}, {0, 1}, DType::bf16, Precision::fp32, "1"},
      {2, 32, 40, {5, 37}, {5, 7}, {1, 1}, {2, 5}, DType::f32, Precision::fp32, "1"},
      {2, 32, 24, {6, 36}, {3, 4}, {1, 2}, {0, 1}, DType::f16, Precision::fp32, "1"},
      {2, 24, 16, {6, 33}, {2, 5}, {1, 3}, {1, 2}, DType::f32, Precision::tf32, "1"},
      {2, 16, 24, {8, 67}, {3, 3}, {1, 1}, {0, 0}, DType::f32, Precision::tf32, "2"},
      {3, 16, 16, {2, 7, 70}, {2, 3, 5}, {2, 1, 1}, {0, 1, 1}, DType::f16, Precision::fp32, "4"},
      // Flat products, whose runs are whole slices.
      {2, 32, 64, {1, 1}, {4, 4}, {1, 1}, {0, 0}, DType::f16, Precision::fp32, "1"},
      {2, 32, 40, {7, 5}, {3, 3}, {1, 1}, {1, 1}, DType::f32, Precision::tf32, "1"},
      {3, 16, 24, {3, 5, 7}, {2, 3, 3}, {1, 1, 1}, {0, 1, 0}, DType::bf16, Precision::fp32, "1"},
      {2, 24, 16, {3, 8}, {3, 2}, {1, 2}, {1, 0}, DType::f16, Precision::fp32, "1"},
      // Kernel = stride: phases along the height are rows that follow one another.
      {2, 32, 40, {7, 7}, {2, 2}, {2, 2}, {0, 0}, DType::f16, Precision::fp32, "1"},
      {2, 32, 24, {9, 37}, {2, 2}, {2, 2}, {0, 0}, DType::f32, Precision::tf32, "1"},
      {3, 32, 16, {3, 5, 9}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, DType::f32, Precision::tf32, "1"},
      {3, 32, 20, {2, 7, 33}, {1, 2, 2}, {2, 2, 2}, {0, 0, 0}, DType::bf16, Precision::fp32, "1"},
      {2, 48, 18, {6, 19}, {4, 2}, {4, 2}, {4, 0}, DType::f16, Precision::fp32, "1"},
      {2, 24, 30, {5, 34}, {2, 3}, {2, 1}, {0, 1}, DType::f32, Precision::fp32, "1"},
  };
  std::mt19937 rng(5);
  int flat = 0;
  set("TCONV_PREFER_PANELS", "runs");
  for (const Whole& whole : layers) {
    set("TCONV_X_PHASES", whole.inputs);
    Case c = case_of(whole, &whole - layers);
    c.layer.padding = whole.padding;
    flat += check(c, rng).find("_flat_") != std::string::npos;
  }
  EXPECT_EQ(families["panel of whole rows"], 18);
  EXPECT_GE(flat, 3);
}

/// Layers whose runs have the rows of all phases along the height: such as read other inputs than their
/// neighbours, or none; and whose first row is before the image.
TEST_F(Emulation, RunsOfAllPhases) {
  struct Phases {
    int dims, in, out;
    Extents input, kernel, stride, padding, dilation, output_padding;
    DType dtype;
    Precision precision;
    const char* members = "runs";
    Layout layout = Layout::channels_first;
  };
  const Phases layers[] = {
      // Phases of two and of one tap.
      {2, 32, 32, {7, 33}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, DType::f32, Precision::tf32},
      {2, 32, 40, {9, 30}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, DType::f16, Precision::fp32},
      {3, 16, 32, {3, 5, 20}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, DType::f16, Precision::fp32},
      {2, 24, 16, {6, 35}, {3, 5}, {2, 4}, {0, 2}, {1, 1}, {0, 1}, DType::f32, Precision::tf32},
      {2, 32, 20, {5, 34}, {5, 3}, {4, 1}, {3, 1}, {1, 1}, {2, 0}, DType::bf16, Precision::fp32},
      {2, 32, 24, {6, 33}, {5, 4}, {2, 2}, {3, 1}, {1, 1}, {0, 0}, DType::f32, Precision::fp32},
      // All read the same inputs.
      {2, 32, 32, {6, 35}, {4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, DType::f16, Precision::fp32},
      {2, 24, 48, {9, 37}, {4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, DType::f32, Precision::tf32},
      // Some have no taps, along the height, the width, the depth.
      {3, 32, 64, {3, 6, 32}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {2, 2, 2}, {0, 0, 0}, DType::f32, Precision::tf32},
      {3, 32, 64, {3, 6, 32}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {2, 2, 2}, {1, 1, 1}, DType::f16, Precision::fp32},
      {2, 32, 20, {7, 34}, {3, 5}, {2, 3}, {1, 2}, {2, 1}, {0, 0}, DType::f16, Precision::fp32},
      {2, 32, 16, {6, 40}, {1, 3}, {2, 2}, {0, 1}, {1, 1}, {1, 0}, DType::f32, Precision::tf32},
      {2, 64, 24, {5, 36}, {2, 1}, {3, 3}, {1, 0}, {1, 1}, {2, 2}, DType::bf16, Precision::fp32},
      {2, 64, 16, {5, 33}, {2, 3}, {3, 5}, {1, 1}, {2, 2}, {0, 0}, DType::f16, Precision::fp32},
      // A single row of outputs, which has one before it in its run: the stride of rows says nothing then.
      {2, 32, 32, {1, 60}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, DType::f16, Precision::fp32},
      {2, 32, 32, {1, 60}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, DType::f32, Precision::tf32},
  };
  std::mt19937 rng(11);
  set("TCONV_PREFER_PANELS", "runs");
  set("TCONV_X_PHASES", "1");
  for (const Phases& phases : layers) {
    Case c = case_of(phases, &phases - layers);
    c.layer.padding = phases.padding, c.layer.dilation = phases.dilation;
    c.layer.output_padding = phases.output_padding;
    for (std::size_t d = std::size_t(c.layer.dims); d < 3; ++d)
      c.layer.padding[d] = c.layer.output_padding[d] = 0, c.layer.dilation[d] = 1;
    std::printf("%s\n", check(c, rng).c_str());
  }
  print_families();
  EXPECT_EQ(families["panel of whole rows"], int(std::size(layers)));
  EXPECT_GE(families["panel that fills"], 2);
}

}  // namespace
}  // namespace tconv::cuda::emulated
