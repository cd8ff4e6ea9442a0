// Every dot-product kernel of the instruction set in use, alone, against the sum it stands for.
#include "cpu/kernels/dot_product.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/random.hpp"

namespace {

using namespace tconv::cpu;

template <class T>
void check_all(double tolerance) {
  const DotProductKernels<T>& kernels = dot_product_kernels<T>();
  testing_support::Random random(8);
  const auto fill = [&](std::size_t count) {
    std::vector<T> values(count);
    for (T& v : values) v = T(random.real());
    return values;
  };
  const std::int64_t length = 3 * kernels.lanes, x_pitch = 200, reach = 150;
  const std::vector<std::int64_t> runs{0, 61, 17};
  for (int rows = 1; rows <= kernels.rows; ++rows)
    for (int columns = 1; columns <= kernels.columns; ++columns) {
      ASSERT_NE(kernels.kernel[rows][columns], nullptr);
      const std::vector<T> x = fill(std::size_t(x_pitch * rows)), g = fill(std::size_t(reach + columns * 5));
      const std::int64_t row_pitch = columns + 2;
      std::vector<T> sums = fill(std::size_t(rows * row_pitch));
      const std::vector<T> before = sums;
      DotProduct<T> product{.x = x.data(),
                            .x_pitch = x_pitch,
                            .g = {},
                            .runs = runs.data(),
                            .run_count = std::int64_t(runs.size()),
                            .run_length = length,
                            .sums = sums.data(),
                            .row_pitch = row_pitch};
      for (int column = 0; column < columns; ++column) product.g[column] = g.data() + 3 * column;
      kernels.kernel[rows][columns](product);
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < row_pitch; ++column) {
          const std::size_t at = std::size_t(row * row_pitch + column);
          double expected = before[at];
          if (column < columns)
            for (std::int64_t run : runs)
              for (std::int64_t i = 0; i < length; ++i)
                expected += double(x[std::size_t(row * x_pitch + run + i)]) *
                            double(product.g[column][std::size_t(run + i)]);
          EXPECT_NEAR(sums[at], expected, tolerance) << rows << " x " << columns;
        }
    }
}

TEST(DotProduct, FloatKernels) {
  check_all<float>(2e-5);
}
TEST(DotProduct, DoubleKernels) {
  check_all<double>(1e-13);
}

}  // namespace
