// Storage types and their conversion to the type an engine computes in.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "tconv/tconv.hpp"

namespace tconv::cpu {

// Half-precision numbers as they lie in memory.
struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

inline float to_float(Half h) {
  const std::uint32_t sign = std::uint32_t(h.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (h.bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = h.bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa · 2⁻²⁴, exact in float
    const float magnitude = float(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

inline Half to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {std::uint16_t(sign | 0x7e00u)};   // NaN
  if (magnitude >= 0x477ff000u) return {std::uint16_t(sign | 0x7c00u)};  // rounds to infinity
  if (magnitude < 0x38800000u) {  // below 2⁻¹⁴: adding 0.5 makes the float adder round at 2⁻²⁴
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {std::uint16_t(sign | (std::bit_cast<std::uint32_t>(shifted) & 0x7ffu))};
  }
  const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);  // to nearest, ties to even
  return {std::uint16_t(sign | ((rounded - (112u << 23)) >> 13))};
}

inline float to_float(BFloat16 b) {
  return std::bit_cast<float>(std::uint32_t(b.bits) << 16);
}

inline BFloat16 to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {std::uint16_t(bits >> 16 | 0x40u)};  // NaN, made quiet
  return {std::uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};                  // ties to even
}

/// From what memory holds to what is computed with, and back.
template <class Compute, class Storage>
inline Compute promote(Storage value) {
  if constexpr (std::is_floating_point_v<Storage>)
    return Compute(value);
  else
    return Compute(to_float(value));
}

template <class Storage, class Compute>
inline Storage demote(Compute value) {
  if constexpr (std::is_same_v<Storage, Half>)
    return to_half(float(value));
  else if constexpr (std::is_same_v<Storage, BFloat16>)
    return to_bfloat16(float(value));
  else
    return Storage(value);
}

/// Calls f(Storage()) with the storage type of `dtype`, one of those that are computed in Compute.
template <class Compute, class F>
decltype(auto) with_storage(DType dtype, F&& f) {
  if constexpr (std::is_same_v<Compute, double>) {
    return f(double());
  } else {
    switch (dtype) {
      case DType::f16:
        return f(Half());
      case DType::bf16:
        return f(BFloat16());
      default:
        return f(float());
    }
  }
}

}  // namespace tconv::cpu
