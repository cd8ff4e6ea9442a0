// Division by multiplication against the machine's own.
#include "cuda/kernels/divisor.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <random>

namespace tconv::device {
namespace {

void check(int by, int number) {
  const Divisor divisor(by);
  ASSERT_EQ(divisor.quotient(number), number / by) << number << " / " << by;
  ASSERT_EQ(divisor.remainder(number), number % by) << number << " % " << by;
  int rest = number;
  ASSERT_EQ(divisor.take(rest), number % by);
  ASSERT_EQ(rest, number / by);
}

TEST(Divisor, DividesBesideEveryMultiple) {
  std::mt19937 rng(1);
  const auto below = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(rng); };
  for (int i = 0; i < 20000; ++i) {
    const int by = i < 4096 ? i + 1 : 1 + below(INT_MAX) / (1 << below(31));
    const long long multiple = (long long)below(INT_MAX / by + 1) * by;
    for (const long long number : {multiple - 1, multiple, multiple + 1, (long long)INT_MAX})
      check(by, int(std::clamp<long long>(number, 0, INT_MAX)));
  }
}

TEST(Divisor, TakesTheFastestIndexFirst) {
  const Divisor3 boxes(Int3{3, 5, 7});
  EXPECT_EQ(volume(boxes), 105);
  int rest = ((2 * 3 + 1) * 5 + 4) * 7 + 6;
  EXPECT_EQ(boxes.w.take(rest), 6);
  EXPECT_EQ(boxes.h.take(rest), 4);
  EXPECT_EQ(boxes.d.take(rest), 1);
  EXPECT_EQ(rest, 2);
}

}  // namespace
}  // namespace tconv::device
