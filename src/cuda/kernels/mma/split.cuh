// fp32 on tensor cores: a number is split into a head and a remainder, of which three products are formed.
//
// Into TF32 numbers any can be split. fp16 numbers, whose products take half the time, have as many bits but a small
// range: what is split into them is scaled by a power of two first, so that the largest of its neighbours is about
// 2^15, and products are scaled back when they are added. Head and remainder hold 22 bits of a number that is at least
// 2^-17 of the largest; of a smaller one they hold all bits above 2^-39 of the largest.
#pragma once

#include "ptx/half.cuh"

namespace tconv::device {

/// The tensor core reads the upper 19 bits of a word and ignores the others, so the remainder needs no
/// rounding of its own: it loses at most 2^-23 of the word.
__device__ inline void split_tf32(u32 word, u32& head, u32& rest) {
  head = (word + 0x1000) & 0xffffe000;  // to nearest; a NaN survives in the remainder
  rest = __float_as_uint(__uint_as_float(word) - __uint_as_float(head));
}

/// Two numbers, scaled already.
__device__ inline void split_halves(float low, float high, u32& heads, u32& rests) {
  heads = ptx::to_halves(low, high);
  rests = ptx::to_halves(low - ptx::low_half(heads), high - ptx::high_half(heads));
}

/// The larger of `largest` and the magnitude of a number, which may be infinite; a NaN does not count.
__device__ inline float larger(float largest, float value) { return fmaxf(largest, fabsf(value)); }
/// The magnitude of a number, and 0 where it is not finite.
__device__ inline float finite_magnitude(float value) {
  const float magnitude = fabsf(value);
  return magnitude < __uint_as_float(0x7f800000) ? magnitude : 0.f;
}

/// What numbers are multiplied by whose largest has these bits, and what undoes it. Both are powers of two, and normal.
__device__ inline u32 scale_exponent(u32 largest) { return u32(min(268 - int(largest >> 23), 253)); }
__device__ inline float scale_for(u32 largest) { return __uint_as_float(scale_exponent(largest) << 23); }
__device__ inline float unscale_for(u32 largest) { return __uint_as_float((254 - scale_exponent(largest)) << 23); }
/// What undoes the scale of weights, in two factors: one for parts of a sum, together with what undoes the scale of x,
/// and one for the sum. The first is 2^-20 to 2^20, so that its product with what undoes the scale of x is not too
/// small for a number, and too large only where x is beyond 2^121.
struct Unscale {
  float of_part = 1, of_sum = 1;
  __device__ Unscale() {}
  __device__ explicit Unscale(float scale) {
    const int exponent = int(__float_as_uint(scale) >> 23), of_parts = min(max(exponent, 107), 147);
    of_part = __uint_as_float(u32(of_parts) << 23), of_sum = __uint_as_float(u32(exponent - of_parts + 127) << 23);
  }
};

}  // namespace tconv::device
