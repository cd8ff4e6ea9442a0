// The type a dtype is computed in.
#pragma once

#include "tconv/tconv.hpp"

namespace tconv::cpu {

inline bool computes_in_double(DType dtype) {
  return dtype == DType::f64;
}

/// Calls f(float()) or f(double()).
template <class F>
decltype(auto) with_compute(bool wide, const F& f) {
  return wide ? f(double()) : f(float());
}

/// A pitch in whole cache lines, an odd number of them: rows of a tile then start in different cache sets.
inline std::int64_t spread_pitch(std::int64_t elements, std::int64_t element_bytes) {
  const std::int64_t line = 64 / element_bytes;
  return (((elements + line - 1) / line) | 1) * line;
}

/// Multiply-adds below which another thread is not worth waking.
constexpr double serial_multiply_adds = 200e3;

}  // namespace tconv::cpu
