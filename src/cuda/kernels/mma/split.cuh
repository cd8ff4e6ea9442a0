// fp32 on tensor cores: a word is split into a head that TF32 holds and a remainder.
#pragma once

#include "base.cuh"

namespace tconv::device {

/// The tensor core reads the upper 19 bits of a word and ignores the others, so the remainder needs no
/// rounding of its own: it loses at most 2^-23 of the word.
__device__ inline void split_tf32(u32 word, u32& head, u32& rest) {
  head = (word + 0x1000) & 0xffffe000;  // to nearest; a NaN survives in the remainder
  rest = __float_as_uint(__uint_as_float(word) - __uint_as_float(head));
}

}  // namespace tconv::device
