// Emulated: loads.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

inline const unsigned char* further(const unsigned char* address, u32 stride, int bytes) {
  return address + u64(stride) * u64(bytes);
}
template <class Value>
void load(Value& value, const unsigned char* from) {
  value = *reinterpret_cast<const Value*>(from);
}

inline void prefetch(const unsigned char*) {}

inline float load_fresh(const float* from) { return *from; }

}  // namespace tconv::device::ptx
