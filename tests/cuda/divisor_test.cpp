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
  const auto up_to = [&](int most) { return std::uniform_int_distribution<int>(0, most)(rng); };
  for (int i = 0; i < 20000; ++i) {
    const int by = i < 4096 ? i + 1 : 1 + up_to(INT_MAX - 1) / (1 << up_to(30));
    const long long multiple = static_cast<long long>(up_to(INT_MAX / by)) * by;
    for (const long long number : {multiple - 1, multiple, multiple + 1, static_cast<long long>(INT_MAX)})
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
