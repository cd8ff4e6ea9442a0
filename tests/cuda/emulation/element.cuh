// Element types on the CPU: see the device's own file of this name.
#pragma once

#include "base.cuh"
#include "gemm_config.cuh"

namespace tconv::device {

struct F16 {
  u16 bits;
};
struct BF16 {
  u16 bits;
};

template <Math math>
struct ElementFor {
  using Type = float;
};
template <>
struct ElementFor<Math::f16> {
  using Type = F16;
};
template <>
struct ElementFor<Math::bf16> {
  using Type = BF16;
};
template <>
struct ElementFor<Math::f64> {
  using Type = double;
};
template <GemmConfig C>
using ElementOf = typename ElementFor<C.math>::Type;

template <Math math>
struct OperandWordFor {
  using Type = u32;
};
template <>
struct OperandWordFor<Math::f64> {
  using Type = double;
};
template <GemmConfig C>
using OperandWord = typename OperandWordFor<C.math>::Type;

template <class Element>
struct AccumulatorOf {
  using Type = float;
};
template <>
struct AccumulatorOf<double> {
  using Type = double;
};
template <Math math>
using SumFor = typename AccumulatorOf<typename ElementFor<math>::Type>::Type;

inline double load_as_accumulator(double value) { return value; }
inline float load_as_accumulator(float value) { return value; }
inline float load_as_accumulator(F16 value) {
  _Float16 half;
  std::memcpy(&half, &value.bits, 2);
  return float(half);
}
inline float load_as_accumulator(BF16 value) { return __uint_as_float(u32(value.bits) << 16); }

inline void convert(double& to, double from) { to = from; }
inline void convert(float& to, float from) { to = from; }
inline void convert(F16& to, float from) {
  const _Float16 half = _Float16(from);
  std::memcpy(&to.bits, &half, 2);
}
inline void convert(BF16& to, float from) {
  const u32 bits = __float_as_uint(from);
  to.bits = u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class Element, class Accumulator>
inline Element to_element(Accumulator value) {
  Element result;
  convert(result, value);
  return result;
}

}  // namespace tconv::device
