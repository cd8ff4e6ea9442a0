// Panels of x that is turned before, and tiles that share sums.
#include "emulated/check.hpp"

namespace tconv::cuda::emulated {
namespace {

using std::int64_t;

/// Layers whose x is turned for many channel blocks.
TEST_F(Emulation, TurnedPanels) {
  struct Turned {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    int64_t batch, groups;
  };
  using enum Layout;
  const Turned layers[] = {
      {2, 244, 256, {4, 5}, {2, 2}, {2, 2}, DType::f32, Precision::tf32, channels_first, 3, 1},  // an octet of
                                                                                                 // zeros
      {2, 64, 128, {4, 4}, {4, 4}, {2, 2}, DType::f16, Precision::fp32, channels_first, 5, 1},
      {1, 40, 64, {32}, {8}, {4}, DType::f32, Precision::fp32, channels_first, 3, 1},
      {1, 32, 128, {200}, {4}, {2}, DType::bf16, Precision::fp32, channels_first, 2, 1},
      {2, 32, 256, {5, 7}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_last, 2, 1},
      {3, 136, 64, {2, 3, 4}, {2, 2, 2}, {2, 2, 2}, DType::f32, Precision::tf32, channels_first, 2, 1},
      {2, 36, 256, {9, 40}, {1, 3}, {1, 1}, DType::f32, Precision::fp32, channels_last, 1, 2},
      {3, 16, 256, {3, 5, 70}, {1, 2, 2}, {1, 1, 1}, DType::f16, Precision::fp32, channels_first, 1, 1},
      // Images whose halo is zeros that they share: of one input, and in three dimensions.
      {2, 32, 256, {1, 1}, {4, 4}, {1, 1}, DType::f16, Precision::fp32, channels_first, 20, 1},
      {2, 32, 256, {2, 3}, {5, 4}, {1, 1}, DType::f32, Precision::tf32, channels_last, 7, 1},
      {3, 32, 128, {2, 2, 3}, {3, 4, 4}, {1, 2, 2}, DType::f32, Precision::fp32, channels_first, 5, 1},
      {1, 32, 256, {9}, {7}, {2}, DType::bf16, Precision::fp32, channels_first, 9, 1},
  };
  std::mt19937 rng(1);
  set("TCONV_PREFER_PANELS", "turned");
  for (const Turned& turned : layers) {
    Case c = case_of(turned, &turned - layers);
    Layer& l = c.layer;
    l.groups = turned.groups, l.in_channels *= turned.groups, l.out_channels *= turned.groups;
    for (std::size_t d = 0; d < std::size_t(l.dims); ++d) l.padding[d] = l.kernel[d] > 1;
    c.batch = turned.batch;
    check(c, rng);
  }
  print_families();
  EXPECT_EQ(families["turned panel"], 12);
  EXPECT_GE(families["panel of shared zeros"], 5);
}

/// Small images whose rows lie side by side in panels, of all images of a box: the last box has fewer of them.
TEST_F(Emulation, RowsOfImagesSideBySide) {
  struct Beside {
    int dims, in, out;
    Extents input, kernel, stride, padding;
    DType dtype;
    Precision precision;
    Layout layout;
    int64_t batch;
  };
  using enum Layout;
  const Beside layers[] = {
      {2, 32, 128, {4, 4}, {4, 4}, {2, 2}, {1, 1}, DType::f16, Precision::fp32, channels_first, 11},
      {2, 32, 128, {8, 8}, {4, 4}, {2, 2}, {1, 1}, DType::f32, Precision::tf32, channels_first, 5},
      {2, 32, 64, {4, 4}, {4, 4}, {2, 2}, {1, 1}, DType::f32, Precision::fp32, channels_last, 9},
      {2, 64, 64, {8, 8}, {4, 4}, {2, 2}, {1, 1}, DType::bf16, Precision::fp32, channels_last, 3},
      {2, 40, 64, {5, 7}, {5, 5}, {2, 2}, {2, 2}, DType::f16, Precision::fp32, channels_first, 5},
      {2, 32, 256, {3, 6}, {3, 3}, {1, 1}, {1, 1}, DType::f32, Precision::fp32, channels_first, 8},
      {2, 20, 128, {6, 5}, {3, 4}, {1, 1}, {0, 2}, DType::f32, Precision::tf32, channels_first, 6},
      {3, 32, 64, {2, 3, 4}, {3, 4, 4}, {1, 2, 2}, {1, 1, 1}, DType::f16, Precision::fp32, channels_first, 7},
      {3, 24, 64, {2, 4, 4}, {4, 4, 4}, {2, 2, 2}, {1, 1, 1}, DType::f32, Precision::tf32, channels_last, 5},
      {2, 32, 64, {6, 4}, {1, 6}, {1, 2}, {0, 2}, DType::f16, Precision::fp32, channels_first, 5},
  };
  std::mt19937 rng(1);
  set("TCONV_PREFER_PANELS", "beside");
  for (const Beside& beside : layers) {
    Case c = case_of(beside, &beside - layers);
    c.layer.padding = beside.padding, c.layer.padding[2] *= c.layer.dims == 3;
    c.batch = beside.batch;
    check(c, rng);
  }
  print_families();
  EXPECT_EQ(families["panel of rows side by side"], 9);  // the last layer has no taps along the height
  EXPECT_GE(families["panel of shared zeros"], 5);
  EXPECT_GE(families["panel of moved positions"], 3);
}

/// Random ones; TCONV_EMULATED_LAYERS and TCONV_EMULATED_SEED ask for more, or others.
TEST_F(Emulation, RandomSmallImagesSideBySide) {
  std::mt19937 rng(unsigned(asked("TCONV_EMULATED_SEED", 1)));
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  set("TCONV_PREFER_PANELS", "beside");
  for (int left = asked("TCONV_EMULATED_LAYERS", 3); left > 0;) {
    Case c;
    Layer& l = c.layer;
    l.dims = pick(2, 3), l.bias = true;
    l.in_channels = pick(1, 6) * 8, l.out_channels = pick(1, 4) * 32;
    for (int i = 0; i < l.dims; ++i) {
      const auto d = std::size_t(i);
      l.kernel[d] = pick(2, l.dims == 2 ? 5 : 3), l.stride[d] = pick(1, 2);
      l.padding[d] = pick(0, int(l.kernel[d]) / 2), l.output_padding[d] = pick(0, int(l.stride[d]) - 1);
      l.dilation[d] = pick(0, 5) ? 1 : 2, c.input[d] = pick(1, l.dims == 2 ? 9 : 4);
    }
    for (std::size_t d = std::size_t(l.dims); d < 3; ++d) c.input[d] = 1;
    const int mode = pick(0, 3);
    l.dtype = mode < 2 ? DType::f32 : mode == 2 ? DType::f16 : DType::bf16;
    l.precision = mode == 1 ? Precision::tf32 : Precision::fp32;
    l.layout = pick(0, 2) ? Layout::channels_first : Layout::channels_last;
    c.batch = pick(2, 11), c.multiprocessors = pick(0, 1) ? 2 : 132;
    c.text = "layer " + std::to_string(left);
    for (const auto* values : {&c.input, &l.kernel, &l.stride, &l.padding, &l.output_padding, &l.dilation})
      c.text += " " + format_extents(l.dims, *values);
    try {
      (void)shape_of(l, c.batch, c.input);
    } catch (const Error&) {
      continue;
    }
    --left;
    check(c, rng);
  }
  print_families();
}

/// Images that share so many zeros that a shift behind another one begins before it in a panel: no operand of a
/// pair of steps has its second half before its first.
TEST_F(Emulation, PairsOfStepsBesideSharedZeros) {
  std::mt19937 rng(1);
  set("TCONV_PREFER_PANELS", "turned");
  Case c;
  Layer& l = c.layer;
  l.dims = 2, l.in_channels = 8, l.dtype = DType::f16, l.kernel = {5, 5, 1}, l.padding = {2, 2, 0};
  c.input = {1, 1, 1}, c.batch = 9;
  for (const std::int64_t out : {64, 256}) {
    l.out_channels = out, c.text = "to " + std::to_string(out);
    EXPECT_NE(check(c, rng).find("_k4_"), std::string::npos) << c.text;
  }
}

/// Layers whose x is turned once for all boxes, along the height and the depth, in one box along the width or
/// several.
TEST_F(Emulation, TurnedOnceForAllBoxes) {
  struct Turned {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    int64_t batch, groups;
  };
  using enum Layout;
  const Turned layers[] = {
      {2, 32, 256, {11, 70}, {3, 3}, {1, 1}, DType::f16, Precision::fp32, channels_first, 2, 1},
      {3, 32, 64, {6, 5, 38}, {3, 3, 3}, {2, 2, 2}, DType::f32, Precision::tf32, channels_first, 1, 1},
      {3, 24, 64, {5, 9, 20}, {3, 2, 3}, {2, 1, 2}, DType::bf16, Precision::fp32, channels_first, 2, 2},
      {2, 40, 256, {9, 33}, {3, 4}, {1, 2}, DType::f32, Precision::fp32, channels_first, 1, 1},
      {2, 36, 256, {7, 250}, {2, 3}, {1, 1}, DType::f32, Precision::tf32, channels_last, 1, 1},
      // Pairs of steps.
      {3, 8, 64, {5, 6, 34}, {3, 3, 3}, {2, 2, 2}, DType::f16, Precision::fp32, channels_first, 1, 1},
      {3, 16, 256, {7, 3, 34}, {3, 1, 3}, {1, 1, 1}, DType::f16, Precision::fp32, channels_last, 2, 1},
  };
  std::mt19937 rng(19);
  set("TCONV_PREFER_PANELS", "once");
  for (const Turned& turned : layers) {
    Case c = case_of(turned, &turned - layers);
    Layer& l = c.layer;
    l.groups = turned.groups, l.in_channels *= turned.groups, l.out_channels *= turned.groups;
    for (std::size_t d = 0; d < std::size_t(l.dims); ++d) l.padding[d] = l.kernel[d] > 2;
    c.batch = turned.batch;
    std::printf("%s\n", check(c, rng).c_str());
  }
  print_families();
  EXPECT_EQ(families["panel turned once for all boxes"], int(std::size(layers)));
}

/// The same where positions are several inputs, which lie apart in panels.
TEST_F(Emulation, SeveralInputsTurnedOnceForAllBoxes) {
  struct Turned {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    const char* inputs;
  };
  using enum Layout;
  const Turned layers[] = {
      {2, 40, 24, {13, 41}, {3, 3}, {1, 1}, DType::f16, Precision::fp32, channels_first, "2"},
      {2, 24, 8, {9, 70}, {4, 3}, {2, 1}, DType::f32, Precision::tf32, channels_first, "4"},
      {3, 24, 8, {3, 7, 24}, {2, 3, 3}, {1, 1, 1}, DType::bf16, Precision::fp32, channels_first, "8"},
  };
  std::mt19937 rng(29);
  set("TCONV_PREFER_PANELS", "once");
  for (const Turned& turned : layers) {
    set("TCONV_X_PHASES", turned.inputs);
    Case c = case_of(turned, &turned - layers);
    c.layer.padding = {1, 1, 0};
    const std::string kernel = check(c, rng);
    EXPECT_NE(kernel.find("_once"), std::string::npos) << kernel;
    EXPECT_NE(kernel.find(std::string("_x") + turned.inputs), std::string::npos) << kernel;
  }
}

/// Layers whose taps reach far along depth and height: a panel for each shift there. Among them strides whose
/// phases differ in their shifts, and images much smaller than what taps reach.
TEST_F(Emulation, PanelsOfOneShift) {
  struct Far {
    int dims, in, out;
    Extents input, kernel, stride, dilation;
    DType dtype;
    Precision precision;
    Layout layout;
    int64_t batch, groups;
  };
  using enum Layout;
  const Far layers[] = {
      {3, 32, 64, {3, 4, 12}, {3, 2, 3}, {1, 1, 1}, {4, 4, 4}, DType::f16, Precision::fp32, channels_first, 2, 1},
      {3, 16, 32, {3, 4, 7}, {3, 2, 4}, {2, 1, 2}, {3, 4, 1}, DType::f32, Precision::tf32, channels_first, 1, 2},
      {3, 16, 40, {2, 3, 9}, {4, 4, 3}, {1, 2, 1}, {2, 3, 2}, DType::f32, Precision::fp32, channels_first, 1, 1},
      {3, 40, 64, {2, 3, 4}, {4, 4, 2}, {1, 1, 1}, {3, 2, 1}, DType::bf16, Precision::fp32, channels_first, 2, 1},
      {3, 40, 64, {1, 2, 3}, {5, 3, 3}, {1, 1, 1}, {2, 2, 1}, DType::f32, Precision::tf32, channels_first, 2, 1},
      {2, 24, 64, {9, 30}, {5, 3}, {1, 1}, {4, 2}, DType::f16, Precision::fp32, channels_last, 1, 1},
      {2, 20, 64, {6, 21}, {7, 4}, {2, 2}, {5, 3}, DType::f32, Precision::fp32, channels_last, 1, 1},
      {2, 32, 64, {6, 19}, {9, 5}, {3, 4}, {4, 1}, DType::f16, Precision::fp32, channels_first, 1, 1},
      {3, 136, 64, {2, 2, 3}, {3, 3, 2}, {1, 1, 1}, {2, 2, 2}, DType::f16, Precision::fp32, channels_first, 1, 1},
      // Few channels: positions of several inputs.
      {3, 20, 8, {2, 3, 20}, {3, 2, 3}, {2, 2, 2}, {4, 4, 4}, DType::f16, Precision::fp32, channels_first, 1, 1},
      {2, 20, 8, {7, 33}, {9, 3}, {1, 1}, {2, 2}, DType::f32, Precision::tf32, channels_first, 2, 1},
  };
  std::mt19937 rng(23);
  set("TCONV_PREFER_PANELS", "shifts");
  for (const Far& far : layers) {
    Case c = case_of(far, &far - layers);
    Layer& l = c.layer;
    l.groups = far.groups, l.in_channels *= far.groups, l.out_channels *= far.groups;
    for (std::size_t d = 0; d < std::size_t(l.dims); ++d)
      l.dilation[d] = far.dilation[d], l.padding[d] = l.kernel[d] > 2;
    c.batch = far.batch;
    std::printf("%s\n", check(c, rng).c_str());
  }
  print_families();
  EXPECT_EQ(families["panel of one shift"], int(std::size(layers)));
}

/// A layer that has no tile but of turned x, and more images than workspace has room for: a few at a time.
TEST_F(Emulation, ImagesTurnedAFewAtATime) {
  std::mt19937 rng(41);
  set("TCONV_MOST_TURNED_BYTES", "4000000");
  Case c;
  Layer& l = c.layer;
  l.dims = 3, l.in_channels = 32, l.out_channels = 24, l.kernel = {5, 5, 3}, l.dtype = DType::f16, l.bias = true;
  l.dilation = {4, 4, 1};
  c.input = {2, 2, 20}, c.batch = 5, c.text = "five images";
  const std::string kernel = check(c, rng);
  EXPECT_NE(kernel.find("_turned_shifts"), std::string::npos) << kernel;
  const int turns = emulator.launched["turn"] + emulator.launched["turn_slices"];
  EXPECT_GE(turns, 3);
  EXPECT_EQ(turns % 3, 0) << "two, two and one";
}

/// The same where x is turned once for all boxes, and in panels of one shift.
TEST_F(Emulation, TilesThatShareSumsOfPanelsCutOut) {
  std::mt19937 rng(37);
  for (const char* kind : {"once", "shifts"})
    for (const DType dtype : {DType::f16, DType::f32}) {
      set("TCONV_PREFER_PANELS", kind);
      Case c;
      Layer& l = c.layer;
      l.dims = 3, l.in_channels = 136, l.out_channels = 32, l.kernel = {3, 3, 2}, l.dtype = dtype;
      l.dilation = {2, 2, 1}, l.precision = Precision::tf32;
      if (dtype == DType::f16) l.precision = Precision::fp32;
      c.input = {3, 3, 6}, c.batch = 1, c.multiprocessors = 132, c.text = kind;
      const std::string kernel = check(c, rng);
      EXPECT_NE(kernel.find(std::string("_turned_") + kind), std::string::npos) << kernel;
      EXPECT_TRUE(kernel.find("_split") != std::string::npos || kernel.find("_cluster") != std::string::npos)
          << kernel;
      std::puts(kernel.c_str());
    }
}

/// Few positions and many channels: tiles that share sums, of equally many chunks and not.
TEST_F(Emulation, TilesThatShareSums) {
  struct Split {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    int64_t batch;
  };
  using enum Layout;
  const Split layers[] = {
      {2, 128, 64, {4, 4}, {4, 4}, {2, 2}, DType::f32, Precision::tf32, channels_first, 1},
      {2, 160, 40, {3, 5}, {3, 3}, {1, 1}, DType::f16, Precision::fp32, channels_first, 2},
      {1, 200, 70, {40}, {5}, {2}, DType::bf16, Precision::fp32, channels_first, 1},
      {3, 96, 64, {2, 2, 3}, {2, 3, 3}, {1, 1, 1}, DType::f32, Precision::fp32, channels_first, 1},
      {2, 192, 64, {4, 5}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_last, 2},
      {2, 144, 128, {6, 6}, {2, 2}, {2, 2}, DType::f16, Precision::fp32, channels_last, 1},
      // Channels that are no vectors: nothing is staged.
      {2, 96, 121, {9, 10}, {3, 3}, {1, 1}, DType::f32, Precision::fp32, channels_last, 1},
      {1, 64, 79, {120}, {6}, {2}, DType::f32, Precision::tf32, channels_last, 1},
  };
  std::mt19937 rng(7);
  set("TCONV_PREFER_PANELS", "split");
  for (const Split& split : layers) {
    Case c = case_of(split, &split - layers);
    for (std::size_t d = 0; d < std::size_t(c.layer.dims); ++d) c.layer.padding[d] = c.layer.kernel[d] > 2;
    c.batch = split.batch, c.multiprocessors = 40;
    check(c, rng);
    EXPECT_EQ(families["panel of shared sums"], &split - layers + 1) << c.text;
  }
}

/// The same as blocks of a cluster, each of which takes one tile or several; x is turned before, or not.
TEST_F(Emulation, ClustersThatShareSums) {
  struct Split {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    int64_t batch;
    const char* kind;
    int multiprocessors;
  };
  using enum Layout;
  const Split layers[] = {
      {1, 64, 32, {9}, {8}, {4}, DType::f32, Precision::tf32, channels_first, 5, "clusters", 40},
      {1, 72, 32, {9}, {8}, {4}, DType::f32, Precision::tf32, channels_first, 5, "turned_clusters", 6},
      {2, 128, 64, {4, 4}, {4, 4}, {2, 2}, DType::f16, Precision::fp32, channels_first, 1, "clusters", 40},
      {2, 80, 40, {3, 5}, {3, 3}, {1, 1}, DType::bf16, Precision::fp32, channels_first, 2, "turned_clusters", 40},
      {1, 100, 70, {40}, {5}, {2}, DType::bf16, Precision::fp32, channels_first, 1, "clusters", 4},
      {1, 48, 33, {150}, {4}, {2}, DType::f32, Precision::fp32, channels_first, 1, "clusters", 4},
      {3,
       48,
       64,
       {2, 2, 3},
       {2, 3, 3},
       {1, 1, 1},
       DType::f32,
       Precision::fp32,
       channels_first,
       1,
       "turned_clusters",
       40},
      // Outputs of channels that are last are rows of all warps.
      {1, 64, 32, {9}, {8}, {4}, DType::f16, Precision::fp32, channels_last, 5, "clusters", 40},
  };
  std::mt19937 rng(9);
  for (const Split& split : layers) {
    set("TCONV_PREFER_PANELS", split.kind);
    Case c = case_of(split, &split - layers);
    for (std::size_t d = 0; d < std::size_t(c.layer.dims); ++d) c.layer.padding[d] = c.layer.kernel[d] > 2;
    c.batch = split.batch, c.multiprocessors = split.multiprocessors;
    check(c, rng);
  }
  EXPECT_EQ(families["panel of clusters"], 7);
}

}  // namespace
}  // namespace tconv::cuda::emulated
