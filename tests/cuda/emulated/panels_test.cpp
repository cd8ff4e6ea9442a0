// Panels that warpgroups share, that have types without taps, rows of many phases, and images of several.
#include "emulated/check.hpp"

namespace tconv::cuda::emulated {
namespace {

/// Layers large enough for warpgroups that share a panel: its channel blocks, or parts of its box.
TEST_F(Emulation, SharedPanels) {
  struct Shared {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
  };
  using enum Layout;
  const Shared layers[] = {
      {2, 24, 64, {6, 40}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_first},
      {2, 48, 64, {4, 36}, {2, 3}, {1, 1}, DType::f16, Precision::fp32, channels_last},
      {2, 16, 32, {5, 33}, {3, 4}, {1, 2}, DType::f32, Precision::fp32, channels_first},
      {3, 16, 32, {2, 3, 34}, {2, 2, 3}, {1, 1, 2}, DType::bf16, Precision::fp32, channels_last},
      {2, 96, 64, {3, 32}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_last},
      {2, 32, 128, {3, 35}, {2, 2}, {2, 2}, DType::f16, Precision::fp32, channels_first},
      {1, 24, 192, {150}, {3}, {1}, DType::f32, Precision::tf32, channels_first},
      {2, 16, 128, {6, 11}, {3, 3}, {1, 1}, DType::f32, Precision::fp32, channels_last},
      // Lines with rows of padding: 3, 5 and 6 phases.
      {1, 64, 48, {150}, {5}, {3}, DType::f16, Precision::fp32, channels_first},
      {2, 32, 24, {4, 40}, {3, 6}, {1, 5}, DType::f32, Precision::tf32, channels_first},
      {1, 40, 32, {100}, {9}, {6}, DType::f32, Precision::fp32, channels_first},
      {2, 32, 20, {5, 9}, {2, 7}, {2, 3}, DType::bf16, Precision::fp32, channels_first},
  };
  std::mt19937 rng(1);
  set("TCONV_PREFER_PANELS", "2");
  for (const Shared& shared : layers) {
    Case c = case_of(shared, &shared - layers);
    for (std::size_t d = 0; d < std::size_t(shared.dims); ++d) c.layer.padding[d] = 1;
    check(c, rng);
  }
  print_families();
  for (const char* const family : {"panel, channels last", "panel of channel blocks", "panel in parts"})
    EXPECT_GT(families[family], 0) << family;
}

/// Layers with types that have no taps: their outputs are the bias.
TEST_F(Emulation, FilledTypes) {
  struct Filled {
    int dims, in, out;
    Extents input, kernel, stride, dilation;
    DType dtype;
    Layout layout;
    const char* panels;  // that are preferred
  };
  using enum Layout;
  const Filled layers[] = {
      {3, 32, 40, {2, 5, 19}, {3, 3, 3}, {2, 2, 2}, {2, 2, 2}, DType::f16, channels_first, "joined"},
      {2, 32, 40, {5, 19}, {3, 3}, {2, 2}, {2, 2}, DType::bf16, channels_last, "1"},
      {3, 24, 20, {2, 3, 21}, {2, 2, 3}, {2, 2, 1}, {2, 4, 1}, DType::f16, channels_first, "2"},
      {2, 40, 64, {4, 13}, {2, 5}, {3, 3}, {3, 1}, DType::bf16, channels_first, "turned"},
      {2, 24, 17, {4, 9}, {2, 3}, {4, 2}, {1, 2}, DType::f16, channels_last, "1"},
  };
  std::mt19937 rng(1);
  for (const Filled& filled : layers) {
    set("TCONV_PREFER_PANELS", filled.panels);
    Case c;
    Layer& l = c.layer;
    l.dims = filled.dims, l.in_channels = filled.in, l.out_channels = filled.out;
    l.dtype = filled.dtype, l.layout = filled.layout, l.bias = true;
    for (std::size_t d = 0; d < std::size_t(filled.dims); ++d) {
      l.kernel[d] = filled.kernel[d], l.stride[d] = filled.stride[d], l.dilation[d] = filled.dilation[d];
      l.padding[d] = 1;
    }
    c.batch = 2, c.input = filled.input;
    c.text = "filled layer " + std::to_string(&filled - layers);
    check(c, rng);
  }
  print_families();
  EXPECT_EQ(families["panel that fills"], int(std::size(layers)));
}

/// Layers of so few channels that a product takes two steps: of one slice, whole or not, with an odd number of
/// steps.
TEST_F(Emulation, PairsOfSteps) {
  struct Paired {
    int dims, in, out, groups;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    const char* panels;  // that are preferred
  };
  using enum Layout;
  const Paired layers[] = {
      {2, 8, 32, 2, {7, 40}, {3, 5}, {1, 2}, DType::f16, Precision::fp32, channels_first, "1"},
      {3, 8, 8, 2, {3, 6, 20}, {3, 5, 7}, {2, 2, 2}, DType::bf16, Precision::fp32, channels_first, "runs"},
      {3, 8, 8, 1, {3, 4, 34}, {3, 5, 7}, {2, 2, 2}, DType::f32, Precision::tf32, channels_first, "1"},
      {2, 4, 48, 2, {6, 37}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_first, "joined"},
      {2, 8, 24, 1, {9, 35}, {7, 7}, {2, 2}, DType::f32, Precision::fp32, channels_first, "1"},
      {2, 8, 64, 1, {5, 33}, {3, 3}, {1, 1}, DType::f16, Precision::fp32, channels_last, "1"},
      {2, 8, 128, 1, {4, 7}, {4, 4}, {2, 2}, DType::bf16, Precision::fp32, channels_first, "turned"},
  };
  std::mt19937 rng(29);
  set("TCONV_X_PHASES", "1");
  for (const Paired& paired : layers) {
    set("TCONV_PREFER_PANELS", paired.panels);
    Case c = case_of(paired, &paired - layers);
    Layer& l = c.layer;
    l.groups = paired.groups, l.in_channels *= paired.groups, l.out_channels *= paired.groups;
    for (std::size_t d = 0; d < std::size_t(l.dims); ++d) l.padding[d] = l.kernel[d] > 2;
    std::printf("%s\n", check(c, rng).c_str());
  }
  print_families();
  EXPECT_EQ(families["panel of paired steps"], int(std::size(layers)));
}

/// One to three input channels: most of an octet is channels that are not there.
TEST_F(Emulation, FewInputChannels) {
  struct Few {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    const char* panels;  // that are preferred
  };
  using enum Layout;
  const Few layers[] = {
      {1, 1, 44, {150}, {8}, {2}, DType::f16, Precision::fp32, channels_first, "1"},
      {1, 2, 40, {97}, {13}, {5}, DType::bf16, Precision::fp32, channels_first, "1"},
      {2, 3, 24, {5, 31}, {4, 6}, {4, 2}, DType::f16, Precision::fp32, channels_last, "1"},
      {3, 3, 20, {4, 5, 7}, {4, 3, 1}, {5, 2, 4}, DType::f16, Precision::fp32, channels_first, "turned"},
      {2, 1, 33, {6, 29}, {4, 2}, {3, 2}, DType::f32, Precision::tf32, channels_first, "1"},
      {1, 3, 24, {120}, {5}, {4}, DType::f32, Precision::tf32, channels_first, "1"},
      {2, 2, 20, {5, 9}, {3, 3}, {2, 2}, DType::f32, Precision::tf32, channels_last, "turned"},
      {1, 3, 24, {90}, {5}, {4}, DType::f32, Precision::fp32, channels_first, "1"},
      {2, 3, 40, {4, 14}, {2, 3}, {2, 2}, DType::f32, Precision::fp32, channels_last, "turned"},
  };
  std::mt19937 rng(31);
  set("TCONV_X_PHASES", "1");
  for (const Few& few : layers) {
    set("TCONV_PREFER_PANELS", few.panels);
    Case c = case_of(few, &few - layers);
    for (std::size_t d = 0; d < std::size_t(c.layer.dims); ++d) c.layer.padding[d] = c.layer.kernel[d] > 2;
    EXPECT_NE(check(c, rng).find("panel"), std::string::npos) << c.text;
  }
  EXPECT_EQ(families["panel of paired steps"], int(std::size(layers)));
}

/// Layers of so many phases along the width that a line takes all 16 rows of a warp: with and without padding of
/// it, with phases that have no taps, of rows, joined rows and flat products.
TEST_F(Emulation, WideStrides) {
  struct Wide {
    int dims, in, out;
    Extents input, kernel, stride, dilation;
    DType dtype;
    Precision precision;
    const char* panels;  // that are preferred
    const char* name;    // that the kernel's has
    Layout layout = Layout::channels_first;
  };
  using enum Precision;
  const Wide layers[] = {
      {1, 32, 7, {301}, {19}, {9}, {1}, DType::f16, fp32, "1", "_f16_"},
      {1, 40, 9, {120}, {20}, {10}, {1}, DType::f32, tf32, "turned", "_tf32_half_"},
      {1, 48, 4, {200}, {32}, {16}, {1}, DType::bf16, fp32, "turns", "_turns"},
      {1, 96, 20, {150}, {23}, {13}, {1}, DType::f32, fp32, "1", "_fp32_halves_"},
      {2, 32, 3, {9, 14}, {5, 14}, {4, 14}, {1, 1}, DType::f32, tf32, "joined", "_rows"},
      {2, 64, 3, {4, 9}, {12, 12}, {12, 12}, {1, 1}, DType::f16, fp32, "1", "_flat_"},
      {2, 64, 5, {5, 40}, {3, 9}, {2, 11}, {2, 1}, DType::f16, fp32, "1", "_f16_"},
      {1, 40, 5, {100}, {16}, {17}, {1}, DType::f32, tf32, "loaders", "_l2_"},
  };
  std::mt19937 rng(1);
  int count = 0;
  for (const Wide& wide : layers) {
    set("TCONV_PREFER_PANELS", wide.panels);
    set("TCONV_PREFER_HALVES", "1");
    Case c = case_of(wide, &wide - layers);
    for (std::size_t d = 0; d < std::size_t(wide.dims); ++d)
      c.layer.dilation[d] = wide.dilation[d], c.layer.padding[d] = 3;
    const std::string kernel = check(c, rng);
    EXPECT_NE(kernel.find(wide.name), std::string::npos) << c.text << ": " << kernel;
    EXPECT_EQ(families["panel"], ++count) << c.text << ": " << kernel;
  }
}

/// Batches of one and small images: fewer positions than a product is wide elsewhere.
TEST_F(Emulation, FewPositions) {
  struct Few {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    const char* panels;  // that are preferred
    int padding;
    int columns;  // of a product
  };
  using enum Layout;
  using enum Precision;
  const Few layers[] = {
      {2, 64, 48, {2, 2}, {4, 4}, {2, 2}, DType::f16, fp32, channels_first, "1", 1, 16},
      {2, 64, 48, {2, 2}, {4, 4}, {2, 2}, DType::f32, tf32, channels_first, "turned", 1, 8},
      {2, 128, 64, {4, 4}, {2, 2}, {2, 2}, DType::bf16, fp32, channels_first, "mapped", 0, 16},
      {2, 128, 64, {4, 4}, {2, 2}, {2, 2}, DType::f16, fp32, channels_first, "clusters", 0, 16},
      {3, 64, 32, {2, 2, 2}, {2, 2, 2}, {2, 2, 2}, DType::f32, tf32, channels_first, "clusters", 0, 8},
      {1, 96, 32, {8}, {16}, {8}, DType::f32, fp32, channels_first, "split", 4, 16},
      {1, 64, 32, {5}, {4}, {2}, DType::f32, tf32, channels_last, "1", 1, 16},
      {2, 64, 64, {1, 1}, {4, 4}, {1, 1}, DType::bf16, fp32, channels_first, "turned_clusters", 0, 16},
      {2, 64, 128, {1, 3}, {3, 3}, {2, 2}, DType::f16, fp32, channels_last, "turned", 1, 8},
      {1, 64, 64, {1}, {2}, {2}, DType::f16, fp32, channels_first, "1", 0, 8},
  };
  std::mt19937 rng(31);
  for (const Few& few : layers) {
    set("TCONV_PREFER_PANELS", few.panels);
    Case c = case_of(few, &few - layers);
    for (std::size_t d = 0; d < std::size_t(few.dims); ++d) c.layer.padding[d] = few.padding;
    c.batch = 1, c.multiprocessors = 40;
    const std::string kernel = check(c, rng);
    EXPECT_NE(kernel.find("_1x" + std::to_string(few.columns) + "_flat"), std::string::npos)
        << c.text << ": " << kernel;
  }
  print_families();
  for (const char* const family : {"mapped panel", "turned panel", "panel of clusters", "panel of shared sums"})
    EXPECT_GT(families[family], 0) << family;
}

/// Kernels reach the images of one box with offsets that must not be negative: such views take the generic kernel.
TEST_F(Emulation, ImagesOfOneBoxInReverseOrder) {
  std::mt19937 rng(1);
  Case c;
  Layer& l = c.layer;
  l.dims = 2, l.out_channels = 64, l.kernel = {2, 2}, l.precision = Precision::tf32;
  c.batch = 5, c.input = {3, 3};
  set("TCONV_PREFER_PANELS", "1");
  const auto check_both_orders = [&] {
    c.backwards = false;
    check(c, rng);
    c.backwards = true;
    EXPECT_EQ(check(c, rng), "generic") << c.text;
  };
  l.in_channels = 32, c.text = "panels";
  check_both_orders();
  l.in_channels = 30, l.layout = Layout::channels_last, c.text = "channels that are no vectors: no panels";
  c.exported = true;
  check_both_orders();
  for (const char* const family : {"warpgroup of several images", "panel of several images"})
    EXPECT_GT(families[family], 0) << family;
}

/// Every second number, one number for all channels, and the last one first.
TEST_F(Emulation, BiasOfAnyStride) {
  std::mt19937 rng(1);
  Case c;
  Layer& l = c.layer;
  l.dims = 2, l.in_channels = 32, l.out_channels = 24, l.kernel = {3, 3}, l.bias = true;
  c.batch = 2, c.input = {5, 6};
  for (const Precision precision : {Precision::fp32, Precision::tf32})
    for (const std::int64_t stride : {2, 0, -1}) {
      l.precision = precision, c.bias_stride = stride, c.text = "bias stride " + std::to_string(stride);
      check(c, rng);
    }
}

}  // namespace
}  // namespace tconv::cuda::emulated
