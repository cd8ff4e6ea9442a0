// The phase plan against the definition: input i and tap k meet output o when o + p = i·s + k·d.
#include "layer/phases.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace {

using std::int64_t;

// Strides, dilations and kernels beyond those of the engine's exhaustive test: here a case costs nothing.
constexpr int64_t max_stride = 8, max_dilation = 8, max_kernel = 9;

template <class Visit>
void for_each_layer(const Visit& visit) {
  for (int64_t stride = 1; stride <= max_stride; ++stride)
    for (int64_t dilation = 1; dilation <= max_dilation; ++dilation)
      for (int64_t kernel = 1; kernel <= max_kernel; ++kernel) visit(kernel, stride, dilation);
}

TEST(Phases, HoldEveryTapOnce) {
  for_each_layer([](int64_t kernel, int64_t stride, int64_t dilation) {
    std::set<int64_t> taps;
    int64_t last_r = -1;
    for (const tconv::Phase& phase : tconv::phases_of(kernel, stride, dilation)) {
      ASSERT_GT(phase.r, last_r) << "phases come by ascending r";
      ASSERT_LT(phase.r, stride);
      ASSERT_FALSE(phase.taps.empty());
      last_r = phase.r;
      int64_t last_k = -1;
      for (const tconv::Tap& tap : phase.taps) {
        ASSERT_GT(tap.k, last_k) << "taps come by ascending k";
        ASSERT_GE(tap.shift, 0);
        ASSERT_TRUE(taps.insert(tap.k).second);
        last_k = tap.k;
      }
    }
    ASSERT_EQ(taps.size(), std::size_t(kernel));
    ASSERT_EQ(*taps.begin(), 0);
    ASSERT_EQ(*taps.rbegin(), kernel - 1);
  });
}

/// All (i, k, o) that meet, by trying every input and tap.
std::set<std::tuple<int64_t, int64_t, int64_t>> meetings(int64_t kernel, int64_t stride, int64_t dilation,
                                                         int64_t padding, int64_t input, int64_t output) {
  std::set<std::tuple<int64_t, int64_t, int64_t>> result;
  for (int64_t i = 0; i < input; ++i)
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t o = i * stride + k * dilation - padding;
      if (o >= 0 && o < output) result.insert({i, k, o});
    }
  return result;
}

TEST(Phases, MeetExactlyWhereTheDefinitionSays) {
  constexpr int64_t input = 4;
  for_each_layer([](int64_t kernel, int64_t stride, int64_t dilation) {
    const auto phases = tconv::phases_of(kernel, stride, dilation);
    for (int64_t padding = 0; padding <= 6; padding += 1 + padding / 2)
      for (const int64_t output : {int64_t(1), int64_t(5), (input - 1) * stride + (kernel - 1) * dilation + 1}) {
        std::set<std::tuple<int64_t, int64_t, int64_t>> got;
        for (const tconv::Phase& phase : phases) {
          const tconv::Range range = tconv::phase_range(phase.r, stride, padding, output);
          for (int64_t q = range.begin; q < range.end; ++q)
            for (const tconv::Tap& tap : phase.taps) {
              const int64_t i = q - tap.shift;
              if (i < 0 || i >= input) continue;
              ASSERT_TRUE(got.insert({i, tap.k, q * stride + phase.r - padding}).second) << "met twice";
            }
        }
        ASSERT_EQ(got, meetings(kernel, stride, dilation, padding, input, output))
            << "kernel " << kernel << " stride " << stride << " dilation " << dilation << " padding " << padding
            << " output " << output;
      }
  });
}

TEST(PhaseRange, IsEveryQOfThatPhaseInsideTheOutput) {
  for (int64_t stride = 1; stride <= 7; ++stride)
    for (int64_t r = 0; r < stride; ++r)
      for (int64_t padding = 0; padding <= 15; ++padding)
        for (int64_t output = 1; output <= 17; ++output) {
          std::set<int64_t> want;
          for (int64_t o = 0; o < output; ++o)
            if ((o + padding) % stride == r) want.insert((o + padding) / stride);
          const tconv::Range range = tconv::phase_range(r, stride, padding, output);
          ASSERT_EQ(range.size(), int64_t(want.size()));
          for (int64_t q = range.begin; q < range.end; ++q) ASSERT_TRUE(want.contains(q));
        }
}

TEST(PhaseRange, HoldsAtLargeValues) {
  const int64_t stride = int64_t(1) << 40;
  EXPECT_EQ(tconv::phase_range(0, stride, 0, 1), (tconv::Range{0, 1}));
  EXPECT_EQ(tconv::phase_range(stride - 1, stride, 0, stride).size(), 1);
  EXPECT_EQ(tconv::phase_range(stride - 1, stride, 0, stride - 1).size(), 0);
}

TEST(MirrorTap, PointsToTheOutputTheTapWrites) {
  for (int64_t stride = 1; stride <= max_stride; ++stride)
    for (int64_t dilation = 1; dilation <= max_dilation; ++dilation)
      for (int64_t k = 0; k < max_kernel; ++k) {
        const tconv::MirrorTap tap = tconv::mirror_tap(k, stride, dilation);
        ASSERT_GE(tap.r, 0);
        ASSERT_LT(tap.r, stride);
        for (int64_t i = 0; i < 5; ++i)
          for (int64_t padding = 0; padding < 4; ++padding)
            ASSERT_EQ((i + tap.shift) * stride + tap.r - padding, i * stride + k * dilation - padding);
      }
}

TEST(Phases, CostNothingForLargeStrides) {
  const auto phases = tconv::phases_of(3, int64_t(1) << 50, 1);
  ASSERT_EQ(phases.size(), 3u);
  EXPECT_EQ(phases[2].r, 2);
}

}  // namespace
