// Every outer-product kernel of the instruction set in use, alone, against the sum it stands for.
#include "cpu/kernels/outer_product.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/random.hpp"

namespace {

using namespace tconv::cpu;

template <class T>
void check_all(double tolerance) {
  const OuterProductKernels<T>& kernels = outer_product_kernels<T>();
  testing_support::Random random(7);
  const auto fill = [&](std::size_t count) {
    std::vector<T> values(count);
    for (T& v : values) v = T(random.real());
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
      const std::vector<T> weight = fill(std::size_t(3 * channels * rows)),
                           source = fill(std::size_t(channels * stride + 8));
      const std::vector<T> start = fill(std::size_t(rows));
      for (bool accumulate : {false, true}) {
        std::vector<T> sums = fill(std::size_t(rows * pitch));
        const std::vector<T> before = sums;
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
                expected += double(weight[std::size_t((tap.weight + c) * rows + row)]) *
                            double(source[std::size_t(tap.source + c * stride + column)]);
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
