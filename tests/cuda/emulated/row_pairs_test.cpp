// Rows of neighbouring phases as a thread has them: 16-bit outputs staged as words.
#include <span>

#include "emulated/check.hpp"

namespace tconv::cuda::emulated {
namespace {

constexpr DType bf16 = DType::bf16;

struct Paired {
  int dims, in, out;
  Extents input, kernel, stride, padding, output_padding;
  const char* panels;
  const char* wanted;
  const char* inputs = "1";  // of a position
  DType dtype = DType::f16;
  Precision precision = Precision::fp32;
  Layout layout = Layout::channels_first;
};

class RowPairs : public Emulation {
 public:
  RowPairs() { set("TCONV_PREFER_PAIRS", "1"); }

  void check_all(std::span<const Paired> layers) {
    std::mt19937 rng(23);
    for (const Paired& paired : layers) {
      set("TCONV_PREFER_PANELS", paired.panels);
      set("TCONV_X_PHASES", paired.inputs);
      Case c = case_of(paired, &paired - layers.data());
      c.layer.padding = paired.padding, c.layer.output_padding = paired.output_padding;
      for (std::size_t d = std::size_t(c.layer.dims); d < 3; ++d)
        c.layer.padding[d] = c.layer.output_padding[d] = 0;
      if (std::string(paired.wanted) == "_split" || std::string(paired.wanted) == "_cluster")
        c.batch = 1, c.multiprocessors = 132;  // which leaves most of them idle
      const std::string kernel = check(c, rng);
      EXPECT_NE(kernel.find("_pairs"), std::string::npos) << c.text << " " << kernel;
      EXPECT_NE(kernel.find(paired.wanted), std::string::npos) << c.text << " " << kernel;
    }
  }
};

/// Runs that begin at a multiple of four elements, behind it by one to three, and each otherwise; rows of a few
/// outputs; products of one row, of several, and flat ones; whole rows; several inputs a position; rows that do
/// not fill sixteens.
TEST_F(RowPairs, LinesOfTwoPhases) {
  const Paired layers[] = {
      {1, 32, 64, {96}, {4}, {2}, {0}, {0}, "1", "panel"},
      {1, 32, 40, {96}, {4}, {2}, {1}, {0}, "1", "panel"},
      {1, 48, 32, {67}, {4}, {2}, {2}, {0}, "1", "panel", "1", bf16},
      {2, 32, 32, {5, 40}, {4, 4}, {2, 2}, {1, 1}, {0, 0}, "joined", "_rows"},
      {2, 32, 24, {6, 35}, {3, 3}, {1, 2}, {1, 1}, {0, 1}, "joined", "_rows", "1", bf16},
      {2, 32, 32, {7, 33}, {3, 3}, {2, 2}, {1, 1}, {0, 0}, "runs", "_runs"},
      {3, 32, 20, {2, 7, 33}, {1, 2, 2}, {2, 2, 2}, {0, 0, 0}, {0, 0, 0}, "runs", "_runs", "1", bf16},
      {2, 40, 64, {4, 4}, {4, 4}, {2, 2}, {1, 1}, {0, 0}, "turned", "_flat"},
      {2, 40, 64, {8, 8}, {4, 4}, {2, 2}, {1, 1}, {0, 0}, "beside", "_beside"},
      // Of several inputs a position.
      {2, 16, 24, {8, 67}, {3, 3}, {1, 1}, {0, 0}, {0, 0}, "1", "_x2", "2"},
      // Rows that do not fill sixteens.
      {2, 32, 20, {6, 33}, {3, 2}, {2, 2}, {1, 0}, {0, 0}, "1", "panel"},
  };
  check_all(layers);
}

/// Of more phases; shared sums, clusters, mapped x, types without taps along the height, channels of several
/// blocks.
TEST_F(RowPairs, LongerLinesAndSharedSums) {
  const Paired layers[] = {
      {2, 256, 64, {4, 4}, {4, 4}, {2, 2}, {1, 1}, {0, 0}, "split", "_split"},
      {1, 256, 64, {40}, {4}, {2}, {1}, {0}, "clusters", "_cluster"},
      {1, 256, 32, {40}, {8}, {4}, {2}, {0}, "turned_clusters", "_cluster"},
      {2, 64, 32, {8, 16}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, "mapped", "_mapped"},
      {3, 16, 16, {2, 7, 70}, {2, 3, 5}, {1, 1, 1}, {0, 1, 1}, {0, 0, 0}, "1", "_x4", "4", bf16},
      {1, 32, 16, {75}, {8}, {4}, {2}, {0}, "1", "panel"},
      {2, 32, 16, {5, 20}, {4, 4}, {2, 4}, {1, 0}, {0, 0}, "turned", "_turned"},
      {1, 40, 24, {33}, {16}, {8}, {3}, {1}, "turned", "_turned"},
      {1, 40, 12, {30}, {16}, {16}, {0}, {0}, "1", "panel"},
      {2, 32, 96, {5, 34}, {1, 3}, {2, 2}, {0, 1}, {1, 0}, "2", "panel"},
  };
  check_all(layers);
}

/// The warpgroup kernel has rows in the order that they are packed in; here blocks of 48, of which the last 16 are
/// padding.
TEST_F(RowPairs, RowsOfTheWarpgroupKernel) {
  struct Listed {
    int dims, in, out;
    Extents input, kernel, stride, padding, dilation;
    DType dtype = DType::f16;
    Precision precision = Precision::fp32;
    Layout layout = Layout::channels_first;
  };
  const Listed layers[] = {
      {3, 26, 45, {12, 5, 6}, {4, 3, 4}, {7, 6, 2}, {3, 2, 3}, {1, 3, 1}},
      {3, 52, 24, {1, 5, 7}, {4, 3, 3}, {3, 4, 2}, {0, 2, 4}, {3, 3, 1}, DType::bf16},
  };
  std::mt19937 rng(5);
  for (const Listed& listed : layers) {
    Case c = case_of(listed, &listed - layers);
    c.layer.padding = listed.padding, c.layer.dilation = listed.dilation;
    c.batch = 1, c.multiprocessors = 132;
    EXPECT_NE(check(c, rng).find("warpgroup_gemm_"), std::string::npos);
  }
}

TEST_F(RowPairs, RandomLayers) {
  std::mt19937 rng(unsigned(asked("TCONV_EMULATED_SEED", 1)));
  const char* const wanted[] = {"1", "turned", "joined", "runs", "2", "turns", "split", "clusters", "beside"};
  for (int left = asked("TCONV_EMULATED_LAYERS", 6); left > 0;) {
    Case c = random_case(rng);
    Layer& l = c.layer;
    l.dtype = left % 2 ? DType::f16 : DType::bf16, l.precision = Precision::fp32;
    l.layout = Layout::channels_first;
    const std::int64_t stride = l.stride[std::size_t(l.dims - 1)];
    if (stride % 2 != 0 && left % 3) continue;
    --left;
    set("TCONV_PREFER_PANELS", wanted[left % 9]);
    c.text += std::string(" as ") + to_string(l.dtype);
    if (left % 2) c.multiprocessors = 132;
    check(c, rng);
  }
  print_families();
}

}  // namespace
}  // namespace tconv::cuda::emulated
