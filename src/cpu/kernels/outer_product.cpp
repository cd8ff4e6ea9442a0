#include "cpu/kernels/outer_product.hpp"

#include <utility>

#include "cpu/kernels/simd.hpp"
#include "cpu/machine.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/outer_product.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once per instruction set.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tconv::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Keeps a loaded vector in a register. GCC otherwise reloads it for every row of small tiles, as an operand of
/// the multiply-add, and an unaligned load costs two slots each time.
template <class V>
HWY_INLINE void KeepInRegister([[maybe_unused]] V& v) {
#if HWY_COMPILER_GCC && HWY_ARCH_X86
  asm("" : "+v"(v.raw));
#endif
}

template <class T, int rows, int vectors>
void AddOuterProducts(const OuterProduct<T>& p) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::int64_t lanes = hn::MaxLanes(d);

  V sum[rows][vectors];
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sum[row][v] = p.start ? hn::Set(d, p.start[row]) : hn::Zero(d);
  // Sums to add to are needed at the end only: until then they can come from however far away.
  if (!p.start)
    for (int row = 0; row < rows; ++row)
      for (int v = 0; v < vectors; ++v) hwy::Prefetch(p.sums + row * p.row_pitch + v * lanes);

  const std::int64_t weight_step = p.weight_step * rows;
  for (std::int64_t t = 0; t < p.tap_count; ++t) {
    const T* HWY_RESTRICT source = p.source + p.taps[t].source;
    const T* HWY_RESTRICT weight = p.weight + p.taps[t].weight * rows;
    for (std::int64_t c = p.channels; c != 0; --c) {
      V x[vectors];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        x[v] = hn::LoadU(d, source + v * lanes);
        KeepInRegister(x[v]);
      }
#pragma GCC unroll 8
      for (int row = 0; row < rows; ++row) {
        const V w = hn::Set(d, weight[row]);
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) sum[row][v] = hn::MulAdd(w, x[v], sum[row][v]);
      }
      source += p.channel_stride;
      weight += weight_step;
    }
  }

#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      T* sums = p.sums + row * p.row_pitch + v * lanes;
      if (!p.start) sum[row][v] = hn::Add(hn::LoadU(d, sums), sum[row][v]);
      hn::StoreU(sum[row][v], d, sums);
    }
}

// Register tiles: sums, one vector of source per column vector and one weight must fit the register file,
// 32 registers with AVX-512 and NEON, 16 before.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int widest_for_rows[] = {0, 8, 8, 6, 6, 4, 4, 3, 3};
#else
constexpr int widest_for_rows[] = {0, 8, 5, 4, 3};
#endif
constexpr int largest_rows = sizeof(widest_for_rows) / sizeof(int) - 1;

template <class T, int rows, int... widths>
void FillWidths(OuterProductKernels<T>& table, std::integer_sequence<int, widths...>) {
  table.widest[rows] = sizeof...(widths);
  ((table.kernel[rows][widths + 1] = &AddOuterProducts<T, rows, widths + 1>), ...);
}

template <class T, int... rows>
void FillRows(OuterProductKernels<T>& table, std::integer_sequence<int, rows...>) {
  (FillWidths<T, rows + 1>(table, std::make_integer_sequence<int, widest_for_rows[rows + 1]>()), ...);
}

template <class T>
OuterProductKernels<T> MakeTable() {
  OuterProductKernels<T> table{};
  table.lanes = hn::MaxLanes(hn::ScalableTag<T>());
  table.rows = largest_rows;
  FillRows<T>(table, std::make_integer_sequence<int, largest_rows>());
  return table;
}

OuterProductKernels<float> OuterTableF32() {
  return MakeTable<float>();
}
OuterProductKernels<double> OuterTableF64() {
  return MakeTable<double>();
}

}  // namespace HWY_NAMESPACE
}  // namespace tconv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tconv::cpu {

HWY_EXPORT(OuterTableF32);
HWY_EXPORT(OuterTableF64);

template <>
const OuterProductKernels<float>& outer_product_kernels<float>() {
  static const OuterProductKernels<float> table = (obey_isa_limit(), HWY_DYNAMIC_DISPATCH(OuterTableF32)());
  return table;
}

template <>
const OuterProductKernels<double>& outer_product_kernels<double>() {
  static const OuterProductKernels<double> table = (obey_isa_limit(), HWY_DYNAMIC_DISPATCH(OuterTableF64)());
  return table;
}

}  // namespace tconv::cpu
#endif  // HWY_ONCE
