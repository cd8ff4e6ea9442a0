// A slice of a panel: four words of channels at one input, as products read them.
#pragma once

#include "element.cuh"
#include "mma/split.cuh"
#include "words.cuh"

namespace tconv::device {

/// Word `index` of a slice whose channels were loaded each by itself, at one input or at two neighbouring ones: of the
/// first, or of the second.
template <int PerWord, int Inputs, class Load, int Loads>
__device__ inline u32 slice_word(const Load (&v)[Loads], int index, bool second) {
  if constexpr (PerWord == 2) {
    const u32 low = v[2 * index], high = v[2 * index + 1];
    if constexpr (Inputs == 1)
      return low | high << 16;
    else
      return __byte_perm(low, high, second ? 0x7632 : 0x5410);
  } else if constexpr (Inputs == 1) {
    return v[index];
  } else {
    return second ? v[index].y : v[index].x;
  }
}

/// A word whose upper 19 bits are the nearest TF32 number: the tensor cores read no others. Infinities and NaNs stay.
__device__ inline u32 near_tf32(u32 word) {
  return fabsf(__uint_as_float(word)) < __uint_as_float(0x7f800000) ? word + 0x1000 : word;
}

/// TF32 is rounded. In fp32 words are split: their heads go to `to`, what remains to `remainders`, which nothing else
/// uses.
template <Math M>
__device__ void store_slice(uint4* to, uint4* remainders, const uint4& v) {
  if constexpr (M == Math::fp32) {
    uint4 head, rest;
    split_tf32(v.x, head.x, rest.x);
    split_tf32(v.y, head.y, rest.y);
    split_tf32(v.z, head.z, rest.z);
    split_tf32(v.w, head.w, rest.w);
    *to = head, *remainders = rest;
  } else if constexpr (M == Math::tf32) {
    *to = make_uint4(near_tf32(v.x), near_tf32(v.y), near_tf32(v.z), near_tf32(v.w));
  } else {
    *to = v;
  }
}

/// Eight channels of an input, scaled: as halves, or rounded to one half each.
template <Math M>
struct ScaledSlice {
  static constexpr int parts = weight_parts(M);
  uint4 part[parts];

  /// `value` gives the bits of a channel.
  template <class Value>
  __device__ ScaledSlice(float scale, const Value& value) {
    const auto scaled = [&](int channel) { return __uint_as_float(value(channel)) * scale; };
    u32 head[4], rest[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) split_halves(scaled(2 * i), scaled(2 * i + 1), head[i], rest[i]);
    part[0] = make_uint4(head[0], head[1], head[2], head[3]);
    if constexpr (parts == 2) part[1] = make_uint4(rest[0], rest[1], rest[2], rest[3]);
  }
  __device__ void store(uint4* to, uint4* remainders) const {
    *to = part[0];
    if constexpr (parts == 2) *remainders = part[1];
  }
};

/// Exchanges two slices, or not.
template <Math M>
__device__ void exchange_if(bool exchanges, ScaledSlice<M>& a, ScaledSlice<M>& b) {
  const auto one = [&](u32& x, u32& y) {
    const u32 first = exchanges ? y : x;
    y = exchanges ? x : y, x = first;
  };
#pragma unroll
  for (int i = 0; i < ScaledSlice<M>::parts; ++i)
    one(a.part[i].x, b.part[i].x), one(a.part[i].y, b.part[i].y), one(a.part[i].z, b.part[i].z),
        one(a.part[i].w, b.part[i].w);
}

/// A channel of a slice that was loaded as vectors of four.
template <int Loads>
__device__ inline u32 channel_of(const uint4 (&v)[Loads], int channel) {
  const uint4& four = v[channel / 4];
  return channel % 4 == 0 ? four.x : channel % 4 == 1 ? four.y : channel % 4 == 2 ? four.z : four.w;
}

}  // namespace tconv::device
