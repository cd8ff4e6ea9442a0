#include "cpu/kernels/dot_product.hpp"

#include <utility>

#include "cpu/kernels/simd.hpp"
#include "cpu/machine.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/dot_product.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once per instruction set.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tconv::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

template <class D, class T>
HWY_INLINE void StoreLaneSums(D, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e, T* sums) {
  sums[0] = hn::GetLane(a);
  sums[1] = hn::GetLane(b);
  sums[2] = hn::GetLane(c);
  sums[3] = hn::GetLane(e);
}

#else

/// The sum over the 128-bit blocks of a vector, in one block.
template <class D>
HWY_INLINE auto SumOfBlocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) <= 16) {
    return v;
  } else {
    const hn::Half<D> half;
    return SumOfBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// Lane sums of four vectors, side by side: far cheaper than four horizontal sums.
template <class D>
HWY_INLINE void StoreLaneSums(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e, float* sums) {
  const hn::Repartition<double, D> pairs;
  const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));  // a b a b
  const auto ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));  // c e c e
  const auto low = hn::BitCast(d, hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce)));
  const auto high = hn::BitCast(d, hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce)));
  const auto block = SumOfBlocks(d, hn::Add(low, high));
  hn::StoreU(block, hn::DFromV<decltype(block)>(), sums);
}

template <class D>
HWY_INLINE void StoreLaneSums(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e, double* sums) {
  const auto ab = SumOfBlocks(d, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce = SumOfBlocks(d, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  const hn::DFromV<decltype(ab)> block;
  hn::StoreU(ab, block, sums);
  hn::StoreU(ce, block, sums + 2);
}

#endif

template <class T, int rows, int columns>
void AddDotProducts(const DotProduct<T>& p) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::int64_t lanes = hn::MaxLanes(d);
  constexpr int count = rows * columns;
  constexpr int padded = (count + 3) / 4 * 4;

  V sum[padded];
#pragma GCC unroll 24
  for (int i = 0; i < padded; ++i) sum[i] = hn::Zero(d);

  for (std::int64_t run = 0; run < p.run_count; ++run) {
    const std::int64_t begin = p.runs[run];
    for (std::int64_t at = begin; at < begin + p.run_length; at += lanes) {
      V x[rows];
#pragma GCC unroll 4
      for (int row = 0; row < rows; ++row) x[row] = hn::LoadU(d, p.x + row * p.x_pitch + at);
#pragma GCC unroll 6
      for (int column = 0; column < columns; ++column) {
        const V g = hn::LoadU(d, p.g[column] + at);
#pragma GCC unroll 4
        for (int row = 0; row < rows; ++row)
          sum[row * columns + column] = hn::MulAdd(x[row], g, sum[row * columns + column]);
      }
    }
  }

  HWY_ALIGN T lane_sums[padded];
#pragma GCC unroll 6
  for (int i = 0; i < padded; i += 4) StoreLaneSums(d, sum[i], sum[i + 1], sum[i + 2], sum[i + 3], lane_sums + i);
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column)
      p.sums[row * p.row_pitch + column] += lane_sums[row * columns + column];
}

// Sums, the x vectors of all rows and one g vector must fit the register file.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int largest_rows = 4, largest_columns = 6;
#else
constexpr int largest_rows = 3, largest_columns = 3;
#endif

template <class T, int rows, int... columns>
void FillColumns(DotProductKernels<T>& table, std::integer_sequence<int, columns...>) {
  ((table.kernel[rows][columns + 1] = &AddDotProducts<T, rows, columns + 1>), ...);
}

template <class T, int... rows>
void FillRows(DotProductKernels<T>& table, std::integer_sequence<int, rows...>) {
  (FillColumns<T, rows + 1>(table, std::make_integer_sequence<int, largest_columns>()), ...);
}

template <class T>
DotProductKernels<T> MakeTable() {
  DotProductKernels<T> table{};
  table.lanes = hn::MaxLanes(hn::ScalableTag<T>());
  table.rows = largest_rows;
  table.columns = largest_columns;
  FillRows<T>(table, std::make_integer_sequence<int, largest_rows>());
  return table;
}

DotProductKernels<float> DotTableF32() {
  return MakeTable<float>();
}
DotProductKernels<double> DotTableF64() {
  return MakeTable<double>();
}

}  // namespace HWY_NAMESPACE
}  // namespace tconv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tconv::cpu {

HWY_EXPORT(DotTableF32);
HWY_EXPORT(DotTableF64);

template <>
const DotProductKernels<float>& dot_product_kernels<float>() {
  static const DotProductKernels<float> table = (obey_isa_limit(), HWY_DYNAMIC_DISPATCH(DotTableF32)());
  return table;
}

template <>
const DotProductKernels<double>& dot_product_kernels<double>() {
  static const DotProductKernels<double> table = (obey_isa_limit(), HWY_DYNAMIC_DISPATCH(DotTableF64)());
  return table;
}

}  // namespace tconv::cpu
#endif  // HWY_ONCE
