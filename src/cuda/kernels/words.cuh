// Words that move as one, and elements as bits of them.
#pragma once

#include "base.cuh"

namespace tconv::device {

/// 32-bit words as they lie in memory. One word may hold a single 16-bit element.
template <int Count>
struct alignas(Count * 4) Words {
  u32 word[Count];
};

/// What moves so many bytes at once.
template <int Bytes>
struct WordOf;
template <>
struct WordOf<2> {
  using Type = u16;
};
template <>
struct WordOf<4> {
  using Type = u32;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};

__device__ inline u32 bits_of(float value) { return __float_as_uint(value); }
template <class Half>
__device__ u32 bits_of(Half value) {
  return value.bits;
}

template <class Element>
__device__ Element element_of(u32 bits) {
  if constexpr (sizeof(Element) == 2)
    return {static_cast<u16>(bits)};
  else
    return __uint_as_float(bits);
}

/// Sixteen bytes from `shift` elements on, of the 32 bytes low, high.
template <class Element>
__device__ inline Words<4> shifted(const Words<4>& low, const Words<4>& high, int shift) {
  const int bytes = shift * int(sizeof(Element));
  u32 w[8], v[6], r[5];
#pragma unroll
  for (int i = 0; i < 4; ++i) w[i] = low.word[i], w[i + 4] = high.word[i];
#pragma unroll
  for (int i = 0; i < 6; ++i) v[i] = bytes & 8 ? w[i + 2] : w[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) r[i] = bytes & 4 ? v[i + 1] : v[i];
  Words<4> result;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    result.word[i] = sizeof(Element) == 2 ? __funnelshift_r(r[i], r[i + 1], bytes % 4 * 8) : r[i];
  return result;
}

}  // namespace tconv::device
