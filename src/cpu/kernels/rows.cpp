#include "cpu/kernels/rows.hpp"

#include <cstring>

#include "cpu/convert.hpp"
#include "cpu/kernels/simd.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once per instruction set.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tconv::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// row[j] = source[j] with conversion.
template <class Compute, class Storage>
HWY_INLINE void LoadContiguous(const Storage* HWY_RESTRICT source, std::int64_t count, Compute* HWY_RESTRICT row) {
  std::int64_t j = 0;
  if constexpr (std::is_same_v<Compute, Storage>) {
    std::memcpy(row, source, std::size_t(count) * sizeof(Compute));
    return;
  } else if constexpr (std::is_same_v<Storage, Half>) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> d16;
    for (; j + std::int64_t(hn::Lanes(d)) <= count; j += hn::Lanes(d))
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(source + j))), d,
                 row + j);
  }
  for (; j < count; ++j) row[j] = promote<Compute>(source[j]);
}

/// row[j] = source[j · step], step 2 to 4. Never reads past source[(count − 1) · step].
template <int step>
HWY_INLINE void LoadEvery(const float* HWY_RESTRICT source, std::int64_t count, float* HWY_RESTRICT row) {
  std::int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = hn::Lanes(d);
  for (; j + lanes < count; j += lanes) {
    hn::Vec<decltype(d)> a, b, c, e;
    if constexpr (step == 2) hn::LoadInterleaved2(d, source + j * step, a, b);
    if constexpr (step == 3) hn::LoadInterleaved3(d, source + j * step, a, b, c);
    if constexpr (step == 4) hn::LoadInterleaved4(d, source + j * step, a, b, c, e);
    hn::StoreU(a, d, row + j);
  }
#endif
  for (; j < count; ++j) row[j] = source[j * step];
}

template <class Compute>
void Load(DType dtype, const void* source, std::int64_t stride, std::int64_t count, Compute* row) {
  with_storage<Compute>(dtype, [&](auto storage) {
    using Storage = decltype(storage);
    const Storage* from = static_cast<const Storage*>(source);
    if (stride == 1) return LoadContiguous(from, count, row);
    if constexpr (std::is_same_v<Storage, float>) {
      if (stride == 2) return LoadEvery<2>(from, count, row);
      if (stride == 3) return LoadEvery<3>(from, count, row);
      if (stride == 4) return LoadEvery<4>(from, count, row);
    }
    for (std::int64_t j = 0; j < count; ++j) row[j] = promote<Compute>(from[j * stride]);
  });
}

// Transposes go block by block, so that the strided side of a block stays in the first-level cache.
constexpr std::int64_t block = 16;

template <class Compute>
void LoadTransposed(DType dtype, const void* source, std::int64_t stride_a, std::int64_t stride_b,
                    std::int64_t count_a, std::int64_t count_b, Compute* tile, std::int64_t tile_pitch) {
  with_storage<Compute>(dtype, [&](auto storage) {
    using Storage = decltype(storage);
    const Storage* from = static_cast<const Storage*>(source);
    for (std::int64_t b0 = 0; b0 < count_b; b0 += block)
      for (std::int64_t a = 0; a < count_a; ++a)
        for (std::int64_t b = b0; b < HWY_MIN(b0 + block, count_b); ++b)
          tile[b * tile_pitch + a] = promote<Compute>(from[a * stride_a + b * stride_b]);
  });
}

template <class Compute>
void Store(DType dtype, const Compute* HWY_RESTRICT row, std::int64_t count, void* target) {
  with_storage<Compute>(dtype, [&](auto storage) {
    using Storage = decltype(storage);
    Storage* HWY_RESTRICT to = static_cast<Storage*>(target);
    std::int64_t j = 0;
    if constexpr (std::is_same_v<Compute, Storage>) {
      std::memcpy(to, row, std::size_t(count) * sizeof(Compute));
      return;
    } else if constexpr (std::is_same_v<Storage, Half>) {
      const hn::ScalableTag<float> d;
      const hn::Rebind<hwy::float16_t, decltype(d)> d16;
      for (; j + std::int64_t(hn::Lanes(d)) <= count; j += hn::Lanes(d))
        hn::StoreU(hn::DemoteTo(d16, hn::LoadU(d, row + j)), d16, reinterpret_cast<hwy::float16_t*>(to + j));
    }
    for (; j < count; ++j) to[j] = demote<Storage>(row[j]);
  });
}

template <class Compute>
void StoreTransposed(DType dtype, const Compute* tile, std::int64_t tile_pitch, std::int64_t count_a,
                     std::int64_t count_b, void* target, std::int64_t stride_a, std::int64_t stride_b) {
  with_storage<Compute>(dtype, [&](auto storage) {
    using Storage = decltype(storage);
    Storage* to = static_cast<Storage*>(target);
    for (std::int64_t b0 = 0; b0 < count_b; b0 += block)
      for (std::int64_t a = 0; a < count_a; ++a)
        for (std::int64_t b = b0; b < HWY_MIN(b0 + block, count_b); ++b)
          to[a * stride_a + b * stride_b] = demote<Storage>(tile[b * tile_pitch + a]);
  });
}

template <int step, class Compute>
HWY_INLINE void InterleaveScalar(const Compute* const* rows, std::int64_t begin, std::int64_t end,
                                 Compute* target) {
  for (std::int64_t j = begin; j < end; ++j)
    for (int r = 0; r < step; ++r) target[j * step + r] = rows[r][j];
}

template <int step, class Compute>
HWY_INLINE void InterleaveVector(const Compute* const* rows, std::int64_t count, Compute* target) {
  std::int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<Compute> d;
  const std::int64_t lanes = hn::Lanes(d);
  for (; j + lanes <= count; j += lanes) {
    const auto a = hn::LoadU(d, rows[0] + j);
    const auto b = hn::LoadU(d, rows[1] + j);
    if constexpr (step == 2) hn::StoreInterleaved2(a, b, d, target + j * step);
    if constexpr (step == 3) hn::StoreInterleaved3(a, b, hn::LoadU(d, rows[2] + j), d, target + j * step);
    if constexpr (step == 4)
      hn::StoreInterleaved4(a, b, hn::LoadU(d, rows[2] + j), hn::LoadU(d, rows[3] + j), d, target + j * step);
  }
#endif
  InterleaveScalar<step>(rows, j, count, target);
}

template <class Compute>
void Interleave(const Compute* const* rows, std::int64_t step, std::int64_t count, Compute* target) {
  switch (step) {
    case 1:
      std::memcpy(target, rows[0], std::size_t(count) * sizeof(Compute));
      return;
    case 2:
      return InterleaveVector<2>(rows, count, target);
    case 3:
      return InterleaveVector<3>(rows, count, target);
    case 4:
      return InterleaveVector<4>(rows, count, target);
    case 5:
      return InterleaveScalar<5>(rows, 0, count, target);
    case 6:
      return InterleaveScalar<6>(rows, 0, count, target);
    case 8:
      return InterleaveScalar<8>(rows, 0, count, target);
    default:
      for (std::int64_t j = 0; j < count; ++j)
        for (std::int64_t r = 0; r < step; ++r) target[j * step + r] = rows[r][j];
  }
}

/// Lanes of Compute over at most 4096 elements, then double: accurate and as fast as memory.
template <class Compute>
double Sum(const Compute* row, std::int64_t count) {
  const hn::ScalableTag<Compute> d;
  const std::int64_t lanes = hn::Lanes(d);
  double total = 0;
  std::int64_t j = 0;
  while (j + 2 * lanes <= count) {
    auto even = hn::Zero(d), odd = hn::Zero(d);
    const std::int64_t end = HWY_MIN(count, j + 4096);
    for (; j + 2 * lanes <= end; j += 2 * lanes) {
      even = hn::Add(even, hn::LoadU(d, row + j));
      odd = hn::Add(odd, hn::LoadU(d, row + j + lanes));
    }
    total += double(hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd))));
  }
  for (; j < count; ++j) total += double(row[j]);
  return total;
}

template <class Compute>
RowKernels<Compute> MakeTable() {
  return {.load = &Load<Compute>,
          .load_transposed = &LoadTransposed<Compute>,
          .store = &Store<Compute>,
          .store_transposed = &StoreTransposed<Compute>,
          .interleave = &Interleave<Compute>,
          .sum = &Sum<Compute>};
}

RowKernels<float> RowTableF32() {
  return MakeTable<float>();
}
RowKernels<double> RowTableF64() {
  return MakeTable<double>();
}

const char* TargetName() {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return "AVX-512";
#elif HWY_TARGET == HWY_AVX2
  return "AVX2";
#elif HWY_ARCH_ARM
  return "NEON";
#else
  return "scalar";
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace tconv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tconv::cpu {

HWY_EXPORT(RowTableF32);
HWY_EXPORT(RowTableF64);
HWY_EXPORT(TargetName);

template <>
const RowKernels<float>& row_kernels<float>() {
  static const RowKernels<float> table = HWY_DYNAMIC_DISPATCH(RowTableF32)();
  return table;
}

template <>
const RowKernels<double>& row_kernels<double>() {
  static const RowKernels<double> table = HWY_DYNAMIC_DISPATCH(RowTableF64)();
  return table;
}

const char* instruction_set_name() {
  return HWY_DYNAMIC_DISPATCH(TargetName)();
}

}  // namespace tconv::cpu
#endif  // HWY_ONCE
