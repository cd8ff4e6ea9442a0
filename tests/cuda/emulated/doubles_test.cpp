// Layers of doubles: the general kernel, whose words are 64 bits there.
#include "cuda/heuristics/packing_plan.hpp"
#include "emulated/check.hpp"

namespace tconv::cuda::emulated {
namespace {

bool has_tiles(const Layer& layer) {
  return !plan_packings(geometry_of(layer), math_of(layer), layer.layout, {.doubles = true}).empty();
}

class Doubles : public Emulation {
 public:
  Doubles() { set("TCONV_PREFER_DOUBLES", "1"); }
};

/// Channels that fill one step of two shifts, channels last that copies take two by two or one by one, groups,
/// phases without taps, rows of both alignments, sums of many channels.
TEST_F(Doubles, EveryKindOfLayer) {
  struct Listed {
    int dims, in, out;
    Extents input, kernel, stride;
    Layout layout = Layout::channels_first;
    Extents dilation = {1, 1, 1};
    int groups = 1;
    DType dtype = DType::f64;
    Precision precision = Precision::fp32;
  };
  using enum Layout;
  const Listed layers[] = {
      {1, 40, 64, {96}, {3}, {1}},
      {1, 40, 24, {33}, {16}, {8}},
      {1, 3, 48, {65}, {5}, {2}},
      {1, 32, 64, {51}, {3}, {2}, channels_first, {2, 1, 1}},
      {2, 48, 32, {6, 12}, {2, 2}, {2, 2}},
      {2, 24, 20, {5, 9}, {3, 4}, {1, 2}, channels_last},
      {2, 17, 33, {4, 7}, {3, 3}, {1, 1}, channels_last},
      {2, 4, 32, {5, 8}, {3, 3}, {1, 1}, channels_last},
      {2, 32, 48, {4, 10}, {3, 3}, {1, 1}, channels_first, {1, 1, 1}, 2},
      {2, 160, 16, {1, 1}, {4, 4}, {1, 1}},
      {3, 16, 12, {2, 3, 5}, {3, 2, 3}, {2, 1, 2}},
  };
  std::mt19937 rng(11);
  for (const Listed& listed : layers) {
    Case c = case_of(listed, &listed - layers);
    Layer& l = c.layer;
    l.dilation = listed.dilation, l.groups = listed.groups;
    for (std::size_t d = 0; d < std::size_t(listed.dims); ++d) l.padding[d] = listed.kernel[d] / 4;
    ASSERT_TRUE(has_tiles(l)) << c.text;
    EXPECT_NE(check(c, rng).find("implicit_gemm_f64_"), std::string::npos) << c.text;
  }
}

TEST_F(Doubles, RandomLayers) {
  std::mt19937 rng(unsigned(asked("TCONV_EMULATED_SEED", 1)));
  for (int left = asked("TCONV_EMULATED_LAYERS", 6); left > 0;) {
    Case c = random_case(rng);
    c.layer.dtype = DType::f64, c.layer.precision = Precision::fp32, c.text += ", in doubles";
    if (!has_tiles(c.layer)) continue;
    --left;
    if (left % 2) c.multiprocessors = 132;
    check(c, rng);
  }
  print_families();
}

/// Where most rows of a block would be idle, and of few channels, the direct kernel serves.
TEST_F(Doubles, FewRowsHaveNoTiles) {
  Layer l;
  l.dims = 1, l.in_channels = 64, l.out_channels = 2, l.kernel = {5}, l.dtype = DType::f64;
  EXPECT_FALSE(has_tiles(l));
  l.out_channels = 16;
  EXPECT_TRUE(has_tiles(l));
  EXPECT_TRUE(plan_packings(geometry_of(l), math_of(l), l.layout, {}).empty()) << "nobody asked";
}

}  // namespace
}  // namespace tconv::cuda::emulated
