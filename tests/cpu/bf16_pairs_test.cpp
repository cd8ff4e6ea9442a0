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
