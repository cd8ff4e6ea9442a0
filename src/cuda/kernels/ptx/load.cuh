// Loads from memory that nothing writes once the kernel before is complete. Not `nc`: that would be read-only from the
// beginning of this one, which may be earlier (launch.cuh).
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

/// `stride` times `bytes` further. The compiler would keep the product, and add 64 bits in two steps.
__device__ inline const unsigned char* further(const unsigned char* address, u32 stride, int bytes) {
  const unsigned char* result;
  asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(result) : "r"(stride), "r"(bytes), "l"(address));
  return result;
}

__device__ inline void load(u16& value, const unsigned char* from) {
  asm("ld.global.u16 %0, [%1];" : "=h"(value) : "l"(from));
}
__device__ inline void load(u32& value, const unsigned char* from) {
  asm("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(from));
}
__device__ inline void load(uint2& value, const unsigned char* from) {
  asm("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "l"(from));
}
__device__ inline void load(uint4& value, const unsigned char* from) {
  asm("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
      : "l"(from));
}

/// Into L2, as it is there: this may come before what writes it is complete.
__device__ inline void prefetch(const unsigned char* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

/// What other blocks of this kernel have written.
__device__ inline float load_fresh(const float* from) {
  float value;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
  return value;
}

}  // namespace tconv::device::ptx
