// What the kernels that move elements share: rows with conversion, and transposes in registers. Included once per
// instruction set, after Highway.
#if defined(TCONV_CPU_TRANSPOSE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TCONV_CPU_TRANSPOSE_INL_HPP
#undef TCONV_CPU_TRANSPOSE_INL_HPP
#else
#define TCONV_CPU_TRANSPOSE_INL_HPP
#endif

#include <hwy/highway.h>

#include "cpu/convert.hpp"

HWY_BEFORE_NAMESPACE();
namespace tconv::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Highway's scalar conversion to f16 truncates; ours rounds.
constexpr bool vector_halves = HWY_TARGET != HWY_SCALAR;

/// Goes over `count` elements in vectors: move(d, j) takes as many as D has lanes from element j on. The last ones
/// may take elements again that were taken before, so that none are left over; of fewer than the narrowest vector
/// has, none are taken. Returns how many were. Masked stores are slow, and what is read next could not be
/// forwarded from them.
template <class T, class Move>
HWY_INLINE std::int64_t InVectors([[maybe_unused]] std::int64_t count, [[maybe_unused]] const Move& move) {
#if HWY_TARGET != HWY_SCALAR
  const auto take = [&](auto d) HWY_ATTR {
    const std::int64_t lanes = hn::Lanes(d);
    if (count < lanes) return false;
    std::int64_t j = 0;
    for (; j + lanes <= count; j += lanes) move(d, j);
    if (j < count) move(d, count - lanes);
    return true;
  };
  if (take(hn::ScalableTag<T>()) || take(hn::CappedTag<T, 8>()) || take(hn::CappedTag<T, 4>())) return count;
#endif
  return 0;
}

/// As many elements as D has lanes, as floats.
template <class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const double* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const Half* from) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const BFloat16* from) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

/// row[j] = source[j] with conversion.
template <class Compute, class Storage>
HWY_INLINE void LoadContiguous(const Storage* HWY_RESTRICT source, std::int64_t count, Compute* HWY_RESTRICT row) {
  std::int64_t j = 0;
  if constexpr (vector_halves)
    j = InVectors<Compute>(
        count, [&](auto d, std::int64_t at) HWY_ATTR { hn::StoreU(LoadAs(d, source + at), d, row + at); });
  for (; j < count; ++j) row[j] = promote<Compute>(source[j]);
}

#if HWY_TARGET != HWY_SCALAR
/// Four neighbouring elements of each of a vector's worth of rows: block b of the result is from row b · 4.
template <class D, class In>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const In& in) {
  constexpr int blocks = hn::MaxLanes(D()) / 4;
  auto v = hn::LoadDup128(d, in((blocks - 1) * 4));
#pragma GCC unroll 4
  for (int block = blocks - 2; block >= 0; --block)
    v = hn::IfThenElse(hn::FirstN(d, std::size_t(block + 1) * 4), hn::LoadDup128(d, in(block * 4)), v);
  return v;
}

/// out(j)[i] = in(i)[j] for as many rows i as D has lanes and j < 4: each block of four lanes transposes four rows
/// of its own, and the blocks of a result are neighbours.
template <class D, class In, class Out>
HWY_INLINE void TransposeBlock(D d, const In& in, const Out& out) {
  const hn::Repartition<double, D> pairs;
  const auto a = LoadBlocks(d, in), b = LoadBlocks(d, [in](int i) HWY_ATTR { return in(i + 1); });
  const auto c = LoadBlocks(d, [in](int i) HWY_ATTR { return in(i + 2); });
  const auto e = LoadBlocks(d, [in](int i) HWY_ATTR { return in(i + 3); });
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, a, b)),
             ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(d, c, e)),
             ce_high = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab_low, ce_low)), d, out(0));
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab_low, ce_low)), d, out(1));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab_high, ce_high)), d, out(2));
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab_high, ce_high)), d, out(3));
}
#endif

#if HWY_TARGET != HWY_SCALAR
/// As many blocks of D's lanes from row i on as there are rows for.
template <class D, class In, class Out>
HWY_INLINE std::int64_t TransposeBlocks(D d, const In& in, std::int64_t i, std::int64_t count, const Out& out) {
  constexpr std::int64_t lanes = hn::MaxLanes(D());
  for (; i + lanes <= count; i += lanes)
    TransposeBlock(
        d, [in, i](int row) HWY_ATTR { return in(i + row); }, [out, i](int j) HWY_ATTR { return out(j) + i; });
  return i;
}
#endif

/// Four columns of a matrix of rows: out(j)[i] = in(i)[j] for i < count, j < 4. Returns how many i it did: whole
/// blocks, the last of four rows.
template <class In, class Out>
HWY_INLINE std::int64_t TransposeColumns([[maybe_unused]] const In& in, [[maybe_unused]] std::int64_t count,
                                         [[maybe_unused]] const Out& out) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  i = TransposeBlocks(hn::ScalableTag<float>(), in, i, count, out);
  i = TransposeBlocks(hn::CappedTag<float, 8>(), in, i, count, out);
  i = TransposeBlocks(hn::CappedTag<float, 4>(), in, i, count, out);
#endif
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace tconv::cpu
HWY_AFTER_NAMESPACE();

#endif
