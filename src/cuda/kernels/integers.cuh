// Integers that host and device count with: one per dimension, rounding, and how many threads work as one.
#pragma once

namespace tconv::device {

/// One integer per spatial dimension, [depth, height, width].
struct Int3 {
  int d, h, w;
  constexpr bool operator==(const Int3&) const = default;
};

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }
constexpr int max_of(int a, int b) { return a > b ? a : b; }
constexpr int min_of(int a, int b) { return a < b ? a : b; }
constexpr int volume(Int3 v) { return v.d * v.h * v.w; }

/// The smallest number at or above `value` that is `residue` modulo the number of banks: strides with residue 8 let a
/// warp read four rows of eight words from 32 different banks. Of 64-bit words there are 16.
constexpr int pad_to_bank(int value, int residue, int banks = 32) {
  return value + ((residue - value) % banks + banks) % banks;
}

constexpr int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }

constexpr int warp_size = 32;
constexpr int warpgroup_size = 128;

}  // namespace tconv::device
