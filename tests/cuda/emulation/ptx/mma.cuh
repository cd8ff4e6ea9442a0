// Emulated mma.sync, and the conversions that feed it.
#pragma once

#include "element.cuh"

namespace tconv::device::ptx {

inline u32 round_tf32(u32 word) {
  if ((word & 0x7f800000) == 0x7f800000) return word & 0xffffe000;
  return (word + 0x1000) & 0xffffe000;
}

/// The dot product of two operand words: one TF32 product, or two 16-bit ones.
template <Math M>
double word_product(u32 a, u32 b) {
  if constexpr (channels_per_word(M) == 2) {
    using Half = typename ElementFor<scales(M) ? Math::f16 : M>::Type;
    double sum = 0;
    for (int i = 0; i < 2; ++i)
      sum += double(load_as_accumulator(Half{u16(a >> 16 * i)})) * load_as_accumulator(Half{u16(b >> 16 * i)});
    return sum;
  } else {
    return double(__uint_as_float(a & 0xffffe000)) * __uint_as_float(b & 0xffffe000);
  }
}

/// A sum as tensor cores keep it: they do not round.
inline float truncated(double sum) {
  const float nearest = float(sum);
  const bool away = std::isfinite(nearest) && std::fabs(double(nearest)) > std::fabs(sum);
  return away ? std::nextafter(nearest, 0.f) : nearest;
}

template <Math M>
inline void mma(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  const u32 words[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  emulation::exchange<6>(words, [&](const std::vector<unsigned>& all) {
    const u32 row = emulation::lane() / 4, column = emulation::lane() % 4 * 2;
    for (u32 half = 0; half < 2; ++half)
      for (u32 e = 0; e < 2; ++e) {
        double sum = d[half * 2 + e];
        for (u32 k = 0; k < 8; ++k)
          sum += word_product<M>(all[(row * 4 + k % 4) * 6 + half + k / 4 * 2],
                                 all[((column + e) * 4 + k % 4) * 6 + 4 + k / 4]);
        d[half * 2 + e] = truncated(sum);
      }
  });
}

/// Doubles: a fused sum of each product, which is as good as any order.
template <Math M>
inline void mma(double (&d)[4], const double (&a)[4], const double (&b)[2]) {
  u32 words[12];
  std::memcpy(words, a, sizeof a);
  std::memcpy(words + 8, b, sizeof b);
  emulation::exchange<12>(words, [&](const std::vector<unsigned>& all) {
    const auto operand = [&](u32 lane, u32 index) {
      double value;
      std::memcpy(&value, &all[lane * 12 + index * 2], sizeof value);
      return value;
    };
    const u32 row = emulation::lane() / 4, column = emulation::lane() % 4 * 2;
    for (u32 half = 0; half < 2; ++half)
      for (u32 e = 0; e < 2; ++e)
        for (u32 k = 0; k < 8; ++k)
          d[half * 2 + e] = std::fma(operand(row * 4 + k % 4, half + k / 4 * 2),
                                     operand((column + e) * 4 + k % 4, 4 + k / 4), d[half * 2 + e]);
  });
}

}  // namespace tconv::device::ptx
