#include "cpu/kernels/rows.hpp"

#include <cstring>

#include "cpu/convert.hpp"
#include "cpu/kernels/simd.hpp"
#include "cpu/machine.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once per instruction set.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "cpu/kernels/transpose-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tconv::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The first n lanes of memory, zeros behind them; nothing else is read.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadFirst(D d, const T* from, std::int64_t n) {
  return hn::MaskedLoad(hn::FirstN(d, std::size_t(HWY_MAX(n, 0))), d, from);
}

/// row[j] = source[2 · j]. Never reads past source[(count − 1) · 2].
HWY_INLINE void LoadEverySecond(const float* HWY_RESTRICT source, std::int64_t count, float* HWY_RESTRICT row) {
  std::int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = hn::Lanes(d);
  for (; j + lanes < count; j += lanes)
    hn::StoreU(hn::ConcatEven(d, hn::LoadU(d, source + 2 * j + lanes), hn::LoadU(d, source + 2 * j)), d, row + j);
  if (count >= lanes) {  // the last ones, some of them again
    const float* last = source + 2 * (count - lanes);
    hn::StoreU(hn::ConcatEven(d, LoadFirst(d, last + lanes, lanes - 1), hn::LoadU(d, last)), d,
               row + count - lanes);
  } else if (count > 0) {
    const std::int64_t left = 2 * count - 1;  // elements that may be read
    const auto even = hn::ConcatEven(d, LoadFirst(d, source + lanes, left - lanes), LoadFirst(d, source, left));
    hn::BlendedStore(even, hn::FirstN(d, std::size_t(count)), d, row);
  }
#else
  for (; j < count; ++j) row[j] = source[2 * j];
#endif
}

/// row[j] = source[j · step], step 3 or 4. Never reads past source[(count − 1) · step].
template <int step>
HWY_INLINE void LoadEvery(const float* HWY_RESTRICT source, std::int64_t count, float* HWY_RESTRICT row) {
  std::int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = hn::Lanes(d);
  for (; j + lanes < count; j += lanes) {
    hn::Vec<decltype(d)> a, b, c, e;
    if constexpr (step == 3) hn::LoadInterleaved3(d, source + j * step, a, b, c);
    if constexpr (step == 4) hn::LoadInterleaved4(d, source + j * step, a, b, c, e);
    hn::StoreU(a, d, row + j);
  }
#endif
  for (; j < count; ++j) row[j] = source[j * step];
}

template <class Compute, class Storage>
HWY_INLINE void LoadRow(const Storage* source, std::int64_t stride, std::int64_t count, Compute* row) {
  if (stride == 1) return LoadContiguous(source, count, row);
  if constexpr (std::is_same_v<Storage, float>) {
    if (stride == 2) return LoadEverySecond(source, count, row);
    if (stride == 3) return LoadEvery<3>(source, count, row);
    if (stride == 4) return LoadEvery<4>(source, count, row);
  }
  for (std::int64_t j = 0; j < count; ++j) row[j] = promote<Compute>(source[j * stride]);
}

template <class Compute>
void Load(DType dtype, const void* source, std::int64_t stride, std::int64_t count, Compute* row) {
  with_storage<Compute>(
      dtype, [&](auto storage) { LoadRow(static_cast<const decltype(storage)*>(source), stride, count, row); });
}

template <class Compute>
void LoadRows(DType dtype, const void* source, std::int64_t row_stride, std::int64_t stride, std::int64_t rows,
              std::int64_t left, std::int64_t count, std::int64_t right, Compute* tile, std::int64_t tile_pitch) {
  with_storage<Compute>(dtype, [&](auto storage) {
    using Storage = decltype(storage);
    for (std::int64_t row = 0; row < rows; ++row) {
      Compute* HWY_RESTRICT to = tile + row * tile_pitch;
      for (std::int64_t j = 0; j < left; ++j) to[j] = 0;
      LoadRow(static_cast<const Storage*>(source) + row * row_stride, stride, count, to + left);
      for (std::int64_t j = left + count; j < left + count + right; ++j) to[j] = 0;
    }
  });
}

/// out[j · out_pitch + i] = in[i · in_pitch + j · in_stride], with conversion. Goes by blocks, so that the strided
/// side of a block stays in the first-level cache.
template <class Out, class In, class Convert>
HWY_INLINE void Transpose(const In* in, std::int64_t in_pitch, std::int64_t in_stride, std::int64_t count_i,
                          std::int64_t count_j, Out* out, std::int64_t out_pitch, std::int64_t out_stride,
                          const Convert& convert) {
  constexpr std::int64_t block = 16;
  for (std::int64_t i0 = 0; i0 < count_i; i0 += block) {
    const std::int64_t i1 = HWY_MIN(i0 + block, count_i);
    std::int64_t j = 0;
    if constexpr (std::is_same_v<In, float> && std::is_same_v<Out, float>)
      if (in_stride == 1 && out_stride == 1)
        for (; j + 4 <= count_j; j += 4) {
          const auto column = [&](int k) { return out + (j + k) * out_pitch + i0; };
          const auto from = [&](std::int64_t i) { return in + (i0 + i) * in_pitch + j; };
          for (std::int64_t i = TransposeColumns(from, i1 - i0, column); i < i1 - i0; ++i)
            for (int k = 0; k < 4; ++k) column(k)[i] = from(i)[k];
        }
    for (; j < count_j; ++j)
      for (std::int64_t i = i0; i < i1; ++i)
        out[j * out_pitch + i * out_stride] = convert(in[i * in_pitch + j * in_stride]);
  }
}

/// to[r][j] = source[j · step + r]: the transpose of a matrix whose rows are `step` long.
template <class T>
HWY_INLINE void SplitPhases(const T* source, std::int64_t step, std::int64_t count, T* const* to) {
  std::int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  if (step == 2)
    j = InVectors<T>(count, [&](auto d, std::int64_t at) HWY_ATTR {
      const auto a = hn::LoadU(d, source + 2 * at), b = hn::LoadU(d, source + 2 * at + hn::Lanes(d));
      hn::StoreU(hn::ConcatEven(d, b, a), d, to[0] + at);
      hn::StoreU(hn::ConcatOdd(d, b, a), d, to[1] + at);
    });
  if (step == 3)
    j = InVectors<T>(count, [&](auto d, std::int64_t at) HWY_ATTR {
      hn::Vec<decltype(d)> a, b, c;
      hn::LoadInterleaved3(d, source + 3 * at, a, b, c);
      hn::StoreU(a, d, to[0] + at);
      hn::StoreU(b, d, to[1] + at);
      hn::StoreU(c, d, to[2] + at);
    });
  if constexpr (std::is_same_v<T, float>) {
    if (step >= 4 && count >= 4) {
      for (std::int64_t next = 0; next < step; next += 4) {
        const std::int64_t r = HWY_MIN(next, step - 4);  // the last four, some of them again
        const auto column = [&](int k) { return to[r + k]; };
        const auto row = [&](std::int64_t i) { return source + i * step + r; };
        if (TransposeColumns(row, count, column) == count) continue;
        const std::int64_t last = count - 4;
        TransposeBlock(
            hn::FixedTag<float, 4>(), [&](int i) HWY_ATTR { return row(last + i); },
            [&](int k) HWY_ATTR { return column(k) + last; });
      }
      return;
    }
  }
#endif
  for (; j < count; ++j)
    for (std::int64_t r = 0; r < step; ++r) to[r][j] = source[j * step + r];
}

HWY_INLINE std::int64_t Clamp(std::int64_t value, std::int64_t low, std::int64_t high) {
  return HWY_MIN(HWY_MAX(value, low), high);
}

/// row = `left` zeros, `count` elements of the source, `right` zeros.
template <class Compute, class Storage>
HWY_INLINE void LoadPadded(const Storage* source, std::int64_t left, std::int64_t count, std::int64_t right,
                           Compute* row) {
  for (std::int64_t j = 0; j < left; ++j) row[j] = 0;
  LoadContiguous(source, count, row + left);
  for (std::int64_t j = 0; j < right; ++j) row[left + count + j] = 0;
}

template <class Compute>
void LoadPhases(DType dtype, const void* source, std::int64_t row_stride, std::int64_t step, std::int64_t rows,
                std::int64_t left, std::int64_t count, std::int64_t right, Compute* const* targets,
                std::int64_t tile_pitch) {
  constexpr std::int64_t most = 2048;
  HWY_ALIGN Compute padded[most], unwanted[most];
  const std::int64_t extent = (left + count + right) / step;
  bool all = true;
  for (std::int64_t r = 0; r < step; ++r) all = all && targets[r] != nullptr;
  with_storage<Compute>(dtype, [&](auto storage) {
    using Storage = decltype(storage);
    // As they are where nothing is padded, converted or left out; else a buffer's worth at a time.
    const bool as_it_is = std::is_same_v<Storage, Compute> && all && left == 0 && right == 0;
    const std::int64_t at_once = as_it_is ? extent : most / step;
    Compute* to[largest_interleave];
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t q = 0; q < extent; q += at_once) {
        const std::int64_t n = HWY_MIN(at_once, extent - q);
        // The elements of these positions, counted from the source's first one, and which of them it has.
        const std::int64_t begin = q * step - left, end = begin + n * step;
        const std::int64_t first = Clamp(begin, 0, count), last = Clamp(end, first, count);
        const Storage* const real = static_cast<const Storage*>(source) + row * row_stride + first;
        const Compute* from = padded;
        if constexpr (std::is_same_v<Storage, Compute>) from = last - first == end - begin ? real : padded;
        if (from == padded) {
          const std::int64_t zeros = Clamp(-begin, 0, end - begin);
          LoadPadded(real, zeros, last - first, end - begin - zeros - (last - first), padded);
        }
        for (std::int64_t r = 0; r < step; ++r) to[r] = targets[r] ? targets[r] + row * tile_pitch + q : unwanted;
        SplitPhases(from, step, n, to);
      }
  });
}

template <class Compute>
void LoadTransposed(DType dtype, const void* source, std::int64_t stride_a, std::int64_t stride_b,
                    std::int64_t count_a, std::int64_t count_b, Compute* tile, std::int64_t tile_pitch) {
  with_storage<Compute>(dtype, [&](auto storage) {
    using Storage = decltype(storage);
    Transpose(static_cast<const Storage*>(source), stride_a, stride_b, count_a, count_b, tile, tile_pitch, 1,
              [](Storage value) { return promote<Compute>(value); });
  });
}

template <class Compute>
void Store(DType dtype, const Compute* HWY_RESTRICT row, std::int64_t count, void* target) {
  with_storage<Compute>(dtype, [&](auto storage) {
    using Storage = decltype(storage);
    Storage* HWY_RESTRICT to = static_cast<Storage*>(target);
    std::int64_t j = 0;
    if constexpr (std::is_same_v<Compute, Storage>) {
      if (count > 0) std::memcpy(to, row, std::size_t(count) * sizeof(Compute));
      return;
    } else if constexpr (std::is_same_v<Storage, Half> && vector_halves) {
      const hn::ScalableTag<float> d;
      const hn::Rebind<hwy::float16_t, decltype(d)> d16;
      for (; j + std::int64_t(hn::Lanes(d)) <= count; j += hn::Lanes(d))
        hn::StoreU(hn::DemoteTo(d16, hn::LoadU(d, row + j)), d16, reinterpret_cast<hwy::float16_t*>(to + j));
    }
    for (; j < count; ++j) to[j] = demote<Storage>(row[j]);
  });
}

template <class Compute>
HWY_INLINE void WritePending(PendingStream<Compute>& pending) {
  for (std::int64_t j = 0; j < pending.count; ++j) pending.next[j - pending.count] = pending.elements[j];
  pending.count = 0;
}

template <class Compute>
void StreamRow(PendingStream<Compute>& pending, const Compute* HWY_RESTRICT row, std::int64_t count,
               Compute* HWY_RESTRICT target) {
  const hn::ScalableTag<Compute> d;
  const std::int64_t lanes = hn::Lanes(d);
  if (pending.next != target) WritePending(pending);
  std::int64_t j = 0;
  if (pending.count > 0) {
    for (; j < count && pending.count < lanes; ++j) pending.elements[pending.count++] = row[j];
    if (pending.count == lanes) {
      hn::Stream(hn::LoadU(d, pending.elements), d, target + j - lanes);
      pending.count = 0;
    }
  } else {
    const std::int64_t misaligned =
        std::int64_t(reinterpret_cast<std::uintptr_t>(target) / sizeof(Compute)) % lanes;
    for (const std::int64_t head = HWY_MIN(count, (lanes - misaligned) % lanes); j < head; ++j) target[j] = row[j];
  }
  for (; j + lanes <= count; j += lanes) hn::Stream(hn::LoadU(d, row + j), d, target + j);
  for (; j < count; ++j) pending.elements[pending.count++] = row[j];
  pending.next = target + count;
}

template <class Compute>
void EndStream(PendingStream<Compute>& pending) {
  WritePending(pending);
  hwy::FlushStream();
}

template <class Compute>
void StoreTransposed(DType dtype, const Compute* tile, std::int64_t tile_pitch, std::int64_t count_a,
                     std::int64_t count_b, void* target, std::int64_t stride_a, std::int64_t stride_b) {
  with_storage<Compute>(dtype, [&](auto storage) {
    using Storage = decltype(storage);
    Transpose(tile, tile_pitch, 1, count_b, count_a, static_cast<Storage*>(target), stride_a, stride_b,
              [](Compute value) { return demote<Storage>(value); });
  });
}

/// The compiler makes vectors of it, for some steps as good ones as can be.
template <int step, class Compute>
HWY_INLINE void InterleaveScalar(const Compute* const* rows, std::int64_t begin, std::int64_t end,
                                 Compute* target) {
  for (std::int64_t j = begin; j < end; ++j)
    for (int r = 0; r < step; ++r) target[j * step + r] = rows[r][j];
}

template <int step, class Compute>
HWY_INLINE void InterleaveVector(const Compute* const* rows, std::int64_t count, Compute* target) {
  const std::int64_t j = InVectors<Compute>(count, [&](auto d, std::int64_t at) HWY_ATTR {
    const auto a = hn::LoadU(d, rows[0] + at), b = hn::LoadU(d, rows[1] + at);
    if constexpr (step == 2) hn::StoreInterleaved2(a, b, d, target + at * step);
    if constexpr (step == 3) hn::StoreInterleaved3(a, b, hn::LoadU(d, rows[2] + at), d, target + at * step);
    if constexpr (step == 4)
      hn::StoreInterleaved4(a, b, hn::LoadU(d, rows[2] + at), hn::LoadU(d, rows[3] + at), d, target + at * step);
  });
  InterleaveScalar<step>(rows, j, count, target);
}

/// Any number of rows, from element `offset` on: four of them at a time are transposed, four elements of each, and
/// what is left over goes one by one.
template <class Compute>
HWY_INLINE void InterleaveMany(const Compute* const* rows, std::int64_t offset, std::int64_t step,
                               std::int64_t count, Compute* HWY_RESTRICT target) {
  std::int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<Compute, float>) {
    const hn::FixedTag<float, 4> d;
    const hn::FixedTag<double, 2> pairs;
    const std::int64_t whole = count / 4 * 4;
    for (; r + 4 <= step; r += 4) {
      const float *a = rows[r] + offset, *b = rows[r + 1] + offset, *c = rows[r + 2] + offset,
                  *e = rows[r + 3] + offset;
      float* to = target + r;
      for (std::int64_t j = 0; j < whole; j += 4, to += 4 * step) {
        const auto va = hn::LoadU(d, a + j), vb = hn::LoadU(d, b + j), vc = hn::LoadU(d, c + j),
                   ve = hn::LoadU(d, e + j);
        const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, va, vb)),
                   ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, va, vb));
        const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(d, vc, ve)),
                   ce_high = hn::BitCast(pairs, hn::InterleaveUpper(d, vc, ve));
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab_low, ce_low)), d, to);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab_low, ce_low)), d, to + step);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab_high, ce_high)), d, to + 2 * step);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab_high, ce_high)), d, to + 3 * step);
      }
      for (std::int64_t j = whole; j < count; ++j)
        for (int k = 0; k < 4; ++k) target[j * step + r + k] = rows[r + k][offset + j];
    }
  }
#endif
  for (std::int64_t j = 0; j < count; ++j)
    for (std::int64_t rest = r; rest < step; ++rest) target[j * step + rest] = rows[rest][offset + j];
}

template <class Compute>
void Interleave(const Compute* const* rows, std::int64_t step, std::int64_t count, Compute* target,
                const Stack& stack) {
  const auto each_row = [&](const auto& interleave) {
    constexpr std::int64_t at_once = 8;  // rows whose pointers are moved together; no step below needs more
    const Compute* from[at_once];
    for (std::int64_t i = 0; i < stack.rows; ++i) {
      for (std::int64_t r = 0; r < step; ++r) from[r] = rows[r] + i * stack.source_pitch;
      interleave(from, target + i * stack.target_pitch);
    }
  };
  switch (step) {
    case 1:
      return each_row([&](auto from, Compute* to) {
        if (count > 0) std::memcpy(to, from[0], std::size_t(count) * sizeof(Compute));
      });
    case 2:
      return each_row([&](auto from, Compute* to) { InterleaveVector<2>(from, count, to); });
    case 3:
      return each_row([&](auto from, Compute* to) { InterleaveVector<3>(from, count, to); });
    case 4:
      return each_row([&](auto from, Compute* to) { InterleaveVector<4>(from, count, to); });
    case 5:
      return each_row([&](auto from, Compute* to) { InterleaveScalar<5>(from, 0, count, to); });
    case 6:
      return each_row([&](auto from, Compute* to) { InterleaveScalar<6>(from, 0, count, to); });
    case 8:
      return each_row([&](auto from, Compute* to) { InterleaveScalar<8>(from, 0, count, to); });
    default:
      for (std::int64_t i = 0; i < stack.rows; ++i)
        InterleaveMany(rows, i * stack.source_pitch, step, count, target + i * stack.target_pitch);
  }
}

template <class Compute>
void Add(const Compute* HWY_RESTRICT source, std::int64_t source_pitch, std::int64_t rows, std::int64_t count,
         Compute* HWY_RESTRICT target, std::int64_t target_pitch) {
  const hn::ScalableTag<Compute> d;
  const std::int64_t lanes = hn::Lanes(d);
  const auto rest = hn::FirstN(d, std::size_t(count % lanes));
  for (std::int64_t row = 0; row < rows; ++row, source += source_pitch, target += target_pitch) {
    std::int64_t j = 0;
    for (; j + lanes <= count; j += lanes)
      hn::StoreU(hn::Add(hn::LoadU(d, target + j), hn::LoadU(d, source + j)), d, target + j);
    if (j < count)
      hn::BlendedStore(hn::Add(hn::MaskedLoad(rest, d, target + j), hn::MaskedLoad(rest, d, source + j)), rest, d,
                       target + j);
  }
}

/// Lanes of Compute over at most 256 elements each, then double: accurate and as fast as memory.
template <class Compute>
double Sum(const Compute* row, std::int64_t count) {
  const hn::ScalableTag<Compute> d;
  const std::int64_t lanes = hn::Lanes(d);
  double total = 0;
  std::int64_t j = 0;
  while (j + 2 * lanes <= count) {
    auto even = hn::Zero(d), odd = hn::Zero(d);
    const std::int64_t end = HWY_MIN(count, j + 256 * lanes);
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
          .load_rows = &LoadRows<Compute>,
          .load_phases = &LoadPhases<Compute>,
          .load_transposed = &LoadTransposed<Compute>,
          .store = &Store<Compute>,
          .stream = &StreamRow<Compute>,
          .end_stream = &EndStream<Compute>,
          .store_transposed = &StoreTransposed<Compute>,
          .interleave = &Interleave<Compute>,
          .add = &Add<Compute>,
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
  static const RowKernels<float> table = (obey_isa_limit(), HWY_DYNAMIC_DISPATCH(RowTableF32)());
  return table;
}

template <>
const RowKernels<double>& row_kernels<double>() {
  static const RowKernels<double> table = (obey_isa_limit(), HWY_DYNAMIC_DISPATCH(RowTableF64)());
  return table;
}

const char* instruction_set_name() {
  obey_isa_limit();
  return HWY_DYNAMIC_DISPATCH(TargetName)();
}

}  // namespace tconv::cpu
#endif  // HWY_ONCE
