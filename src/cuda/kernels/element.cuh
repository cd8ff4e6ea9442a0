// Element types as they lie in memory, and their conversion to and from the types they are summed in.
#pragma once

#include "base.cuh"
#include "gemm_config.cuh"

namespace tconv::device {

/// 16-bit floats are carried as bits: conversion is one instruction, and no header is needed.
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

/// A word of operands.
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

__device__ inline double load_as_accumulator(double value) { return value; }
__device__ inline float load_as_accumulator(float value) { return value; }
__device__ inline float load_as_accumulator(F16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
__device__ inline float load_as_accumulator(BF16 value) { return __uint_as_float(u32(value.bits) << 16); }

__device__ inline void convert(double& to, double from) { to = from; }
__device__ inline void convert(float& to, float from) { to = from; }
__device__ inline void convert(F16& to, float from) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(from)); }
__device__ inline void convert(BF16& to, float from) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(from)); }

template <class Element, class Accumulator>
__device__ inline Element to_element(Accumulator value) {
  Element result;
  convert(result, value);
  return result;
}

}  // namespace tconv::device
