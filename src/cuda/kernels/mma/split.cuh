// fp32 on tensor cores: a number is split into a head and a remainder, of which three products are formed.
//
// Into TF32 numbers any can be split. fp16 numbers, whose products take half the time, have as many bits but a small
// range: what is split into them is scaled by a power of two first, so that the largest of its neighbours is about
// 2^15, and products are scaled back when they are added. Head and remainder hold 22 bits of a number that is at least
// 2^-17 of the largest; of a smaller one they hold all bits above 2^-39 of the largest.
#pragma once

#include "mma/scale.cuh"
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

}  // namespace tconv::device
