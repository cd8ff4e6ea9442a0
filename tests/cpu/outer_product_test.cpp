// Every outer-product kernel of the instruction set in use, alone, against the sum it stands for.
#include "cpu/kernels/outer_product.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cpu/convert.hpp"
#include "cpu/kernels/bf16_pairs.hpp"
#include "support/random.hpp"

namespace {

using namespace tconv::cpu;

template <class T>
void fill(testing_support::Random& random, T& value) {
  value = T(random.real());
}
void fill(testing_support::Random& random, BFloat16Pair& pair) {
  const auto number = [&] { return std::uint32_t(to_bfloat16(float(random.real())).bits); };
  pair.bits = number() | number() << 16;
}

template <class T>
double product(T a, T b) {
  return double(a) * double(b);
}
double product(BFloat16Pair a, BFloat16Pair b) {
  double sum = 0;
  for (const int shift : {0, 16})
    sum += double(to_float(BFloat16{std::uint16_t(a.bits >> shift)})) *
           double(to_float(BFloat16{std::uint16_t(b.bits >> shift)}));
  return sum;
}

template <class T>
void check_all(double tolerance) {
  using Sum = SumOf<T>;
  const OuterProductKernels<T>& kernels = outer_product_kernels<T>();
  testing_support::Random random(7);
  const auto filled = [&]<class V>(V, std::size_t count) {
    std::vector<V> values(count);
    for (V& v : values) fill(random, v);
    return values;
  };
  int kernels_seen = 0;
  for (int rows = 1; rows <= kernels.rows; ++rows)
    for (int vectors = 1; vectors <= kernels.widest[rows]; ++vectors) {
      ASSERT_NE(kernels.kernel[rows][vectors], nullptr) << rows << " x " << vectors;
      ++kernels_seen;
      const std::int64_t columns = vectors * kernels.lanes, channels = 3, stride = columns + 9,
                         pitch = columns + 5;
      const std::vector<TapOffset> taps{{4, 2 * channels}, {0, 0}, {7, channels}};
      const std::vector<T> weight = filled(T(), std::size_t(3 * channels * rows)),
                           source = filled(T(), std::size_t(channels * stride + 8));
      const std::vector<Sum> start = filled(Sum(), std::size_t(rows));
      for (bool accumulate : {false, true}) {
        std::vector<Sum> sums = filled(Sum(), std::size_t(rows * pitch));
        const std::vector<Sum> before = sums;
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
                expected += product(weight[std::size_t((tap.weight + c) * rows + row)],
                                    source[std::size_t(tap.source + c * stride + column)]);
            EXPECT_NEAR(sums[at], expected, tolerance) << rows << " x " << vectors;
          }
      }
    }
  EXPECT_GE(kernels_seen, kernels.rows);
}

TEST(OuterProduct, FloatKernels) {
  check_all<float>(1e-5);
}
TEST(OuterProduct, DoubleKernels) {
  check_all<double>(1e-14);
}

TEST(OuterProduct, KernelsOfBf16Pairs) {
  if (!multiplies_bf16_pairs()) GTEST_SKIP() << "no AVX-512 BF16, or TCONV_MAX_CPU_ISA rules it out";
  check_all<BFloat16Pair>(1e-5);
}

TEST(OuterProduct, NoTapsLeaveTheStart) {
  const OuterProductKernels<float>& kernels = outer_product_kernels<float>();
  std::vector<float> sums(std::size_t(kernels.lanes), 5.0f);
  const float start = 2.5f;
  kernels.kernel[1][1]({.weight = nullptr,
                        .source = nullptr,
                        .channel_stride = 0,
                        .channels = 4,
                        .taps = nullptr,
                        .tap_count = 0,
                        .sums = sums.data(),
                        .row_pitch = kernels.lanes,
                        .start = &start});
  for (float sum : sums) EXPECT_EQ(sum, 2.5f);
}

}  // namespace
