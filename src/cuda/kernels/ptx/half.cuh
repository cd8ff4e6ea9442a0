// Pairs of fp16 numbers in a word.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

/// Both rounded to nearest.
__device__ inline u32 to_halves(float low, float high) {
  u32 word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
__device__ inline float low_half(u32 word) {
  float value;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(value) : "r"(word));
  return value;
}
__device__ inline float high_half(u32 word) {
  float value;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}" : "=f"(value) : "r"(word));
  return value;
}

}  // namespace tconv::device::ptx
