// Stores to memory that the kernel does not read.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

/// 16 bytes to global memory. Where an address has been through shuffles the compiler does not know that it is global,
/// and would keep loads from shared memory behind the store.
__device__ inline void store(void* at, const uint4& value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(at)), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w));
}
/// Fewer of them.
__device__ inline void store(void* at, const uint2& value) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(at)), "r"(value.x), "r"(value.y));
}
__device__ inline void store(void* at, u32 value) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "r"(value));
}
__device__ inline void store(void* at, u16 value) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "h"(value));
}
/// One element.
template <class Element>
__device__ inline void store(Element* at, const Element& value) {
  if constexpr (sizeof(Element) == 4)
    asm volatile("st.global.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "f"(value));
  else
    asm volatile("st.global.u16 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "h"(value.bits));
}

}  // namespace tconv::device::ptx
