// Division by numbers that a launch knows and a kernel does not: one multiplication, where the machine's own takes some
// twenty instructions that wait for each other.
#pragma once

#include "integers.cuh"

namespace tconv::device {

/// Divides numbers of 0 to 2^31 - 1 by `by`, which is at least 1.
struct Divisor {
  int by = 1;
  // 2^(31 + shift) / by, rounded up, with 2^shift at least `by`: what rounding adds is below 2^shift / 2^(31 + shift)
  // a unit, and below 1 for all numbers together.
  unsigned factor = 1u << 31, shift = 0;

  constexpr Divisor() = default;
  constexpr Divisor(long long divisor) : by(int(divisor)) {
    while (1ll << shift < divisor) ++shift;
    factor = unsigned(((1ull << (31 + shift)) + by - 1) / by);
  }
  constexpr int quotient(int number) const {
    return int(unsigned((unsigned long long)(unsigned(number) * 2) * factor >> 32) >> shift);
  }
  constexpr int remainder(int number) const { return number - quotient(number) * by; }
  /// The remainder of `rest`, which becomes the quotient: takes the fastest index off a number of several.
  constexpr int take(int& rest) const {
    const int whole = rest;
    rest = quotient(whole);
    return whole - rest * by;
  }
};

struct Divisor3 {
  Divisor d, h, w;
  constexpr Divisor3() = default;
  constexpr Divisor3(const Int3& by) : d(by.d), h(by.h), w(by.w) {}
};
constexpr int volume(const Divisor3& v) { return v.d.by * v.h.by * v.w.by; }

}  // namespace tconv::device
