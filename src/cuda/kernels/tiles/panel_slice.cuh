// A slice of a panel: four words of channels at one input, as products read them.
#pragma once

#include "element.cuh"
#include "mma/split.cuh"
#include "ptx/mma.cuh"

namespace tconv::device {

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
    *to = make_uint4(ptx::round_tf32(v.x), ptx::round_tf32(v.y), ptx::round_tf32(v.z), ptx::round_tf32(v.w));
  } else {
    *to = v;
  }
}

}  // namespace tconv::device
