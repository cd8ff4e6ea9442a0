// mma.sync (sm_80): 16 x 8 products of one warp, and the conversions that feed them.
#pragma once

#include "base.cuh"
#include "math.cuh"

namespace tconv::device::ptx {

/// Rounds to TF32's 10 mantissa bits, to nearest, ties away from zero.
__device__ inline u32 round_tf32(u32 word) {
  u32 rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(word)));
  return rounded;
}

/// D += A·B for a 16 x 8 x 8 (tf32) or 16 x 8 x 16 (16-bit) product. Operands are in fragment order.
template <Math M>
__device__ inline void mma(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  if constexpr (M == Math::f16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else if constexpr (M == Math::bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// 16 x 8 x 8 of doubles, with the fragments of TF32, in two products of half the depth. Before sm_90 products are
/// 8 x 8 x 4, of a word of each lane. (m16n8k8 is one product, and as fast; but where one sum alone is formed in a
/// loop, assemblers leave out the wait between the last product of a round and the first one of the next:
/// tests/cuda/double_products_test.cpp.)
template <Math M>
__device__ inline void mma(double (&d)[4], const double (&a)[4], const double (&b)[2]) {
#pragma unroll
  for (int depth = 0; depth < 2; ++depth)
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[depth * 2]), "d"(a[depth * 2 + 1]), "d"(b[depth]));
#else
#pragma unroll
    for (int half = 0; half < 2; ++half)
      asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
          : "+d"(d[half * 2]), "+d"(d[half * 2 + 1])
          : "d"(a[depth * 2 + half]), "d"(b[depth]));
#endif
}

}  // namespace tconv::device::ptx
