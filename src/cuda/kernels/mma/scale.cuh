// Scales that bring fp32 numbers into the range of fp16: powers of two, by which a panel of x and the weights of an
// output channel are multiplied before they are rounded or split, and which are undone in sums. A scale is kept as its
// exponent, as fp32 stores it.
#pragma once

#include "base.cuh"

namespace tconv::device {

__device__ inline float power_of_two(u32 exponent) { return __uint_as_float(exponent << 23); }

constexpr u32 infinity_bits = 0x7f800000;
/// The larger of `largest` and the magnitude of a number, which may be infinite; a NaN does not count.
__device__ inline float larger(float largest, float value) { return fmaxf(largest, fabsf(value)); }
/// The magnitude of a number, and 0 where it is not finite.
__device__ inline float finite_magnitude(float value) {
  const float magnitude = fabsf(value);
  return magnitude < __uint_as_float(infinity_bits) ? magnitude : 0.f;
}

/// Of numbers whose largest has these bits: it becomes 2^14 to 2^15.
__device__ inline u32 scale_for(u32 largest) { return u32(min(268 - int(largest >> 23), 253)); }
/// What undoes a scale; normal, as all scales are.
__device__ inline u32 undone(u32 scale) { return 254 - scale; }

// Where all products of a tile are one sum, panels of one scale are best: sums have to be scaled where it changes. So
// scales are 2^8 apart, and the largest number becomes 2^7 to 2^15: 11 bits remain of what is 2^-21 of it, and of a
// smaller number all bits above 2^-32 of it. Most x have a largest number between 2^-4 and 2^4, and one scale.
__device__ inline u32 coarse_scale_for(u32 largest) { return u32(min(266 - (int(largest >> 23) + 5) / 8 * 8, 253)); }
/// Of a panel of zeros, and of what is not finite.
constexpr u32 any_scale = 0;
/// Whether the largest number, so scaled, is below 2^15.
__device__ inline bool has_room(u32 scale, u32 largest) { return (largest >> 23) + scale < 269; }

/// What sums are multiplied by when their scale changes. Where they grow by more than `most_growth` they might no
/// longer be finite.
constexpr int most_growth = 64;
__device__ inline float change_of_scale(u32 from, u32 to) {
  return power_of_two(u32(max(127 + int(to) - int(from), 1)));
}

/// What undoes the scale of weights, in two factors: one for parts of a sum, together with what undoes the scale of x,
/// and one for the sum. The first is 2^-20 to 2^20, so that its product with what undoes the scale of x is not too
/// small for a number, and too large only where x is beyond 2^121.
struct Unscale {
  float of_part = 1, of_sum = 1;
  __device__ Unscale() {}
  __device__ explicit Unscale(float scale) {
    const int exponent = int(__float_as_uint(scale) >> 23), of_parts = min(max(exponent, 107), 147);
    of_part = power_of_two(u32(of_parts)), of_sum = power_of_two(u32(exponent - of_parts + 127));
  }
};

/// What undoes the scales of x and of weights in a whole sum: a factor, and the rest of it, which is hardly ever
/// needed.
struct UnscaleSum {
  float factor, rest;
  __device__ UnscaleSum(u32 x_scale, float of_weights) {
    const int exponent = int(undone(x_scale)) + int(__float_as_uint(of_weights) >> 23) - 254;
    const int most = min(max(exponent, -126), 127);
    factor = power_of_two(u32(127 + most)), rest = power_of_two(u32(127 + exponent - most));
  }
};

}  // namespace tconv::device
