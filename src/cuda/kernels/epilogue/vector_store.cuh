// Stores of several outputs at once: pairs and fours; and of staged runs, vectors of 16 bytes that are aligned in
// memory and in the staging buffer, of which the first and the last of a run may reach beyond it.
#pragma once

#include "element.cuh"

namespace tconv::device {

__device__ inline void store_pair(double* at, double a, double b) {
  *reinterpret_cast<double2*>(at) = make_double2(a, b);
}
__device__ inline void store_pair(float* at, float a, float b) { *reinterpret_cast<float2*>(at) = make_float2(a, b); }
/// Two numbers of 16 bits as a word.
template <class Half>
__device__ u32 pair_of(float low, float high) {
  return to_element<Half>(low).bits | u32(to_element<Half>(high).bits) << 16;
}
template <class Half>
__device__ void store_pair(Half* at, float a, float b) {
  *reinterpret_cast<u32*>(at) = pair_of<Half>(a, b);
}
template <class Half>
__device__ void store_quad(Half* at, float a, float b, float c, float d) {
  *reinterpret_cast<uint2*>(at) = make_uint2(pair_of<Half>(a, b), pair_of<Half>(c, d));
}

/// Outputs between `at` and the vector boundary before it.
template <int Vector, class Element>
__device__ int skew_of(const Element* at) {
  return int(reinterpret_cast<u64>(at) / sizeof(Element) % Vector);
}

/// Stores what of `value` lies in outputs [first, end) of the run at `at`; the vector begins with output `c`.
template <int Vector, class Element>
__device__ void store_vector(Element* at, int first, int end, int c, const uint4& value) {
  if (c >= first && c + Vector <= end) {
    *reinterpret_cast<uint4*>(at + c) = value;
  } else if (c + Vector > first && c < end) {
    const Element* const elements = reinterpret_cast<const Element*>(&value);
#pragma unroll
    for (int i = 0; i < Vector; ++i)
      if (c + i >= first && c + i < end) at[c + i] = elements[i];
  }
}

}  // namespace tconv::device
