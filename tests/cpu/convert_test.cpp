// Half-precision conversion against the formats' definitions, for every bit pattern.
#include "cpu/convert.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/dtype.hpp"
#include "support/random.hpp"

namespace {

using namespace tconv::cpu;
using tconv::DType;

TEST(Convert, EveryHalfIsExactInFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{std::uint16_t(bits)};
    const double expected = testing_support::load_element(DType::f16, &half, 0);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(to_float(half))) << bits;
    } else {
      EXPECT_EQ(double(to_float(half)), expected) << bits;
      EXPECT_EQ(to_half(to_float(half)).bits, half.bits);
    }
  }
}

TEST(Convert, EveryBFloat16IsExactInFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 value{std::uint16_t(bits)};
    const double expected = testing_support::load_element(DType::bf16, &value, 0);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(to_float(value))) << bits;
    } else {
      EXPECT_EQ(double(to_float(value)), expected) << bits;
      EXPECT_EQ(to_bfloat16(to_float(value)).bits, value.bits);
    }
  }
}

TEST(Convert, RoundsToNearestEven) {
  testing_support::Random random(1);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(std::uint32_t(random.bits()));
    if (std::isnan(value)) continue;
    std::uint16_t expected = 0;
    testing_support::store_element(DType::f16, &expected, 0, double(value));
    EXPECT_EQ(to_half(value).bits, expected) << value;
    testing_support::store_element(DType::bf16, &expected, 0, double(value));
    EXPECT_EQ(to_bfloat16(value).bits, expected) << value;
  }
  EXPECT_EQ(to_half(65519.99f).bits, 0x7bff);  // the last float that is not infinite
  EXPECT_EQ(to_half(65520.0f).bits, 0x7c00);
  EXPECT_TRUE(std::isnan(to_float(to_half(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7f800001u)))));  // a NaN in the low bits only
}

}  // namespace
