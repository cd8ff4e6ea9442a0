// Emulated: stores.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

inline void store(void* at, const uint4& value) { *static_cast<uint4*>(at) = value; }
template <class Element>
void store(Element* at, const Element& value) {
  *at = value;
}

}  // namespace tconv::device::ptx
