// The taps of one dimension by phase, where the phase is known at run time only (DESIGN: phases).
#pragma once

#include "base.cuh"

namespace tconv::device {

/// Taps k0 + j·step of a phase; tap k of output o reads input (o + padding − k·dilation) / stride.
template <int Kernel, int Stride, int Dilation>
struct PhaseTaps {
  static constexpr int g = gcd(Stride, Dilation);
  static constexpr int step = Stride / g;

  /// The inverse of dilation / g modulo step.
  static constexpr int inverse() {
    for (int k = 0; k < step; ++k)
      if ((i64(k) * (Dilation / g) - 1) % step == 0) return k;
    return 0;
  }

  /// First tap of a phase; Kernel or more where it has none.
  __device__ static int first(int phase) {
    if constexpr (Dilation == 1) {
      return phase;
    } else {
      if (phase % g != 0) return Kernel;
      constexpr int factor = inverse();
      return int(u64(phase / g) * factor % step);
    }
  }
};

/// rest % size, and rest becomes rest / size; in 32 bits where they do.
__device__ inline u32 divide(u64& rest, u32 size) {
  if (size == 1) return 0;
  u32 index;
  if (rest >> 32) {
    index = u32(rest % size), rest /= size;
  } else {
    index = u32(rest) % size, rest = u32(rest) / size;
  }
  return index;
}

}  // namespace tconv::device
