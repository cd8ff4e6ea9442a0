// Products of warp tiles: which instruction forms them, and what is done to operands on the way.
//
//   f16, bf16   one m16n8k16 product
//   f64         two m16n8k4 products
//   tf32        one m16n8k8 product of operands rounded to nearest: x in its tile, weights when packed
//   fp32        three m16n8k8 products of operands split into a rounded head and a remainder,
//                 x·w = xh·wh + (xh·wl + xl·wh) + O(2^-22)
//               The tensor core truncates when it adds to its accumulator, which biases long sums by
//               half a unit per step. The three products are therefore summed from zero, small ones
//               first, and added to the running sum by the fp32 adder, which rounds to nearest.
#pragma once

#include "element.cuh"
#include "mma/split.cuh"
#include "ptx/mma.cuh"

namespace tconv::device {

/// The operands of one step of one warp: `M` row tiles of weights, `N` column tiles of inputs.
template <Math math, int M, int N>
struct Fragments {
  using Word = typename OperandWordFor<math>::Type;
  using Sum = SumFor<math>;
  Word a[M][4];
  Word b[N][2];

  /// sum += a·b for the row tiles in `mask`.
  __device__ void multiply(Sum (&sum)[M][N][4], u32 mask) {
    if constexpr (math == Math::fp32) {
      multiply_split(sum, mask);
    } else {
#pragma unroll
      for (int m = 0; m < M; ++m)
        if (mask >> m & 1) {
#pragma unroll
          for (int n = 0; n < N; ++n) ptx::mma<math>(sum[m][n], a[m], b[n]);
        }
    }
  }

 private:
  __device__ void multiply_split(Sum (&sum)[M][N][4], u32 mask) {
    u32 b_head[N][2], b_rest[N][2];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      split_tf32(b[n][0], b_head[n][0], b_rest[n][0]);
      split_tf32(b[n][1], b_head[n][1], b_rest[n][1]);
    }
#pragma unroll
    for (int m = 0; m < M; ++m)
      if (mask >> m & 1) {
        u32 a_head[4], a_rest[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) split_tf32(a[m][i], a_head[i], a_rest[i]);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          float part[4] = {0, 0, 0, 0};
          ptx::mma<Math::tf32>(part, a_rest, b_head[n]);
          ptx::mma<Math::tf32>(part, a_head, b_rest[n]);
          ptx::mma<Math::tf32>(part, a_head, b_head[n]);
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[m][n][i] += part[i];
        }
      }
  }
};

}  // namespace tconv::device
