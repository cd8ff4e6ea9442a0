// Emulated: pairs of fp16 numbers in a word.
#pragma once

#include "element.cuh"

namespace tconv::device::ptx {

inline u32 to_halves(float low, float high) {
  return to_element<F16>(low).bits | u32(to_element<F16>(high).bits) << 16;
}
inline float low_half(u32 word) { return load_as_accumulator(F16{u16(word)}); }
inline float high_half(u32 word) { return load_as_accumulator(F16{u16(word >> 16)}); }

}  // namespace tconv::device::ptx
