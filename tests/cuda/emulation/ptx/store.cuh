// Emulated: stores.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

inline void store(void* at, const uint4& value) { *static_cast<uint4*>(at) = value; }
inline void store(void* at, const uint2& value) { *static_cast<uint2*>(at) = value; }
inline void store(void* at, u32 value) { *static_cast<u32*>(at) = value; }
inline void store(void* at, u16 value) { *static_cast<u16*>(at) = value; }
template <class Element>
void store(Element* at, const Element& value) {
  *at = value;
}

}  // namespace tconv::device::ptx
