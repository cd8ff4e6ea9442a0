// The tests' own conversions, against values known from the formats.
#include "support/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace {

using tconv::DType;
using namespace testing_support;

std::uint16_t bits(DType dtype, double value) {
  std::uint16_t result;
  store_element(dtype, &result, 0, value);
  return result;
}

TEST(Half, KnownValues) {
  EXPECT_EQ(bits(DType::f16, 1.0), 0x3c00);
  EXPECT_EQ(bits(DType::f16, -2.0), 0xc000);
  EXPECT_EQ(bits(DType::f16, 65504.0), 0x7bff);
  EXPECT_EQ(bits(DType::f16, 65520.0), 0x7c00);
  EXPECT_EQ(bits(DType::f16, 1.0 / 3), 0x3555);
  EXPECT_EQ(bits(DType::f16, 0x1p-24), 0x0001);
  EXPECT_EQ(bits(DType::f16, 0x1p-14), 0x0400);
  EXPECT_EQ(bits(DType::f16, 0x1p-26), 0x0000);
  EXPECT_EQ(bits(DType::f16, -0.0), 0x8000);
}

TEST(Brain, KnownValues) {
  EXPECT_EQ(bits(DType::bf16, 1.0), 0x3f80);
  EXPECT_EQ(bits(DType::bf16, -2.0), 0xc000);
  EXPECT_EQ(bits(DType::bf16, 3.140625), 0x4049);
  EXPECT_EQ(bits(DType::bf16, 1.0 + 0x1p-8), 0x3f80);      // a tie goes to even
  EXPECT_EQ(bits(DType::bf16, 1.0 + 3 * 0x1p-8), 0x3f82);  // and up, where that is even
}

TEST(Both, EveryFiniteValueSurvives) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
      const auto stored = std::uint16_t(pattern);
      const double value = load_element(dtype, &stored, 0);
      if (std::isnan(value)) continue;
      ASSERT_EQ(bits(dtype, value), stored);
      if (dtype == DType::bf16) {
        const std::uint32_t wide = pattern << 16;
        float same;
        std::memcpy(&same, &wide, 4);
        ASSERT_EQ(value, double(same));
      }
    }
}

TEST(Both, RoundToNearest) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (double value = 0.01; value < 100; value *= 1.01) {
      const double error = std::fabs(rounded(dtype, value) - value);
      ASSERT_LE(error, storage_rounding(dtype) * value);
    }
}

}  // namespace
