// What the products of forward and grad-input are made of: numbers of the type that is computed in or, where the
// machine multiplies bf16 numbers two at a time, pairs of them.
#pragma once

#include <cstdint>

#include "tconv/tconv.hpp"

namespace tconv::cpu {

/// Two neighbouring channels of bf16 numbers, the first in the lower half; of the last of an odd number of
/// channels, and zero.
struct BFloat16Pair {
  std::uint32_t bits;
};

/// The type of sums of products, and the channels that an operand holds.
template <class Operand>
struct OperandTraits {
  using Sum = Operand;
  static constexpr int channels = 1;
};
template <>
struct OperandTraits<BFloat16Pair> {
  using Sum = float;
  static constexpr int channels = 2;
};
template <class Operand>
using SumOf = typename OperandTraits<Operand>::Sum;

enum class OperandKind { f32, f64, bf16_pair };

/// What sums over so many channels of a dtype are computed from on this machine.
OperandKind operand_kind(DType dtype, std::int64_t channels);

/// Calls f(float()), f(double()) or f(BFloat16Pair()).
template <class F>
decltype(auto) with_operand(OperandKind kind, const F& f) {
  switch (kind) {
    case OperandKind::f64:
      return f(double());
    case OperandKind::bf16_pair:
      return f(BFloat16Pair());
    default:
      return f(float());
  }
}

inline std::int64_t operand_bytes(OperandKind kind) {
  return with_operand(kind, [](auto operand) { return std::int64_t(sizeof(operand)); });
}

inline int channels_of(OperandKind kind) {
  return with_operand(kind, [](auto operand) { return OperandTraits<decltype(operand)>::channels; });
}

}  // namespace tconv::cpu
