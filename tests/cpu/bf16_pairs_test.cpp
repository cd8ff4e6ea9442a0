// Every kernel of bf16 pairs alone, against the sum it stands for. On machines that have no such instructions,
// that they are not chosen.
#include "cpu/kernels/bf16_pairs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cpu/convert.hpp"
#include "support/random.hpp"

namespace {

using namespace tconv;
using namespace tconv::cpu;

float part(BFloat16Pair pair, int i) {
  return to_float(BFloat16{std::uint16_t(pair.bits >> (16 * i))});
}

TEST(Bf16Pairs, AreForSumsOfBf16WhereTheMachineHasThem) {
  EXPECT_EQ(operand_kind(DType::f32, 8), OperandKind::f32);
  EXPECT_EQ(operand_kind(DType::f16, 8), OperandKind::f32);
  EXPECT_EQ(operand_kind(DType::f64, 8), OperandKind::f64);
  EXPECT_EQ(operand_kind(DType::bf16, 1), OperandKind::f32);
  EXPECT_EQ(operand_kind(DType::bf16, 2), multiplies_bf16_pairs() ? OperandKind::bf16_pair : OperandKind::f32);
}

TEST(Bf16Pairs, JoinsNumbersAndTouchesNothingElse) {
  if (!multiplies_bf16_pairs()) GTEST_SKIP() << "no AVX-512 BF16, or TCONV_MAX_CPU_ISA rules it out";
  testing_support::Random random(3);
  for (std::int64_t count = 0; count <= 70; ++count)
    for (const bool both : {true, false}) {
      std::vector<float> first(static_cast<std::size_t>(count)), second(first.size());
      for (auto* row : {&first, &second})
        for (float& v : *row) v = to_float(to_bfloat16(float(random.real())));
      std::vector<BFloat16Pair> pairs(std::size_t(count + 1), {0x12345678});
      join_pairs(first.data(), both ? second.data() : nullptr, count, pairs.data());
      for (std::size_t j = 0; j < first.size(); ++j) {
        ASSERT_EQ(part(pairs[j], 0), first[j]);
        ASSERT_EQ(part(pairs[j], 1), both ? second[j] : 0.0f);
      }
      ASSERT_EQ(pairs.back().bits, 0x12345678u);
    }
}

TEST(Bf16Pairs, KernelsAddProductsOfBothChannels) {
  if (!multiplies_bf16_pairs()) GTEST_SKIP() << "no AVX-512 BF16, or TCONV_MAX_CPU_ISA rules it out";
  const OuterProductKernels<BFloat16Pair>& kernels = outer_product_kernels<BFloat16Pair>();
  testing_support::Random random(7);
  const auto number = [&] { return std::uint32_t(to_bfloat16(float(random.real())).bits); };
  const auto pairs = [&](std::int64_t count) {
    std::vector<BFloat16Pair> values(static_cast<std::size_t>(count));
    for (BFloat16Pair& v : values) v.bits = number() | number() << 16;
    return values;
  };
  const auto floats = [&](std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& v : values) v = float(random.real());
    return values;
  };
  for (int rows = 1; rows <= kernels.rows; ++rows)
    for (int vectors = 1; vectors <= kernels.widest[rows]; ++vectors) {
      ASSERT_NE(kernels.kernel[rows][vectors], nullptr) << rows << " x " << vectors;
      const std::int64_t columns = vectors * kernels.lanes, channels = 3, stride = columns + 9,
                         pitch = columns + 5;
      const std::vector<TapOffset> taps{{4, 2 * channels}, {0, 0}, {7, channels}};
      const std::vector<BFloat16Pair> weight = pairs(3 * channels * rows), source = pairs(channels * stride + 8);
      const std::vector<float> start = floats(rows);
      for (const bool accumulate : {false, true}) {
        std::vector<float> sums = floats(rows * pitch);
        const std::vector<float> before = sums;
        kernels.kernel[rows][vectors]({.weight = weight.data(),
                                       .source = source.data(),
                                       .channel_stride = stride,
                                       .channels = channels,
                                       .taps = taps.data(),
                                       .tap_count = std::int64_t(taps.size()),
                                       .sums = sums.data(),
                                       .row_pitch = pitch,
                                       .start = accumulate ? nullptr : start.data()});
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t column = 0; column < pitch; ++column) {
            const std::size_t at = std::size_t(row * pitch + column);
            if (column >= columns) {
              EXPECT_EQ(sums[at], before[at]) << "wrote past its columns";
              continue;
            }
            double expected = accumulate ? before[at] : start[std::size_t(row)];
            for (const TapOffset& tap : taps)
              for (std::int64_t c = 0; c < channels; ++c)
                for (int i = 0; i < 2; ++i)
                  expected += double(part(weight[std::size_t((tap.weight + c) * rows + row)], i)) *
                              double(part(source[std::size_t(tap.source + c * stride + column)], i));
            EXPECT_NEAR(sums[at], expected, 1e-5) << rows << " x " << vectors;
          }
      }
    }
}

TEST(Bf16Pairs, InfinitiesAndNansReachTheirSums) {
  if (!multiplies_bf16_pairs()) GTEST_SKIP() << "no AVX-512 BF16, or TCONV_MAX_CPU_ISA rules it out";
  const OuterProductKernels<BFloat16Pair>& kernels = outer_product_kernels<BFloat16Pair>();
  const auto bits = [](float value) { return std::uint32_t(to_bfloat16(value).bits); };
  std::vector<BFloat16Pair> source(std::size_t(kernels.lanes), {bits(1) | bits(1) << 16});
  source[1].bits = bits(std::numeric_limits<float>::infinity()) | bits(1) << 16;
  source[2].bits = bits(1) | bits(std::numeric_limits<float>::quiet_NaN()) << 16;
  const BFloat16Pair weight{bits(2) | bits(3) << 16};
  const TapOffset tap{0, 0};
  const float start = 0.5f;
  std::vector<float> sums(source.size());
  kernels.kernel[1][1]({.weight = &weight,
                        .source = source.data(),
                        .channel_stride = 0,
                        .channels = 1,
                        .taps = &tap,
                        .tap_count = 1,
                        .sums = sums.data(),
                        .row_pitch = kernels.lanes,
                        .start = &start});
  EXPECT_EQ(sums[0], 5.5f);
  EXPECT_EQ(sums[1], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(sums[2]));
  EXPECT_EQ(sums[3], 5.5f);
}

}  // namespace
