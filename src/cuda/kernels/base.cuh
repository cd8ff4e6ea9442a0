// What every device file needs: fixed-width integers, small helpers, the vocabulary of positions.
//
// The device sources include no header but each other: they are compiled at run time, on machines
// that may have no CUDA toolkit.
#pragma once

#include "integers.cuh"

namespace tconv::device {

using i64 = long long;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

__device__ inline int lane_index() { return threadIdx.x % warp_size; }
__device__ inline int warp_index() { return threadIdx.x / warp_size; }

/// Calls `visit` with the numbers below `Count`, each a constant: `visit(at)` has it as `at.value`.
template <int Value>
struct Constant {
  static constexpr int value = Value;
};
template <int Count, int From = 0, class Visit>
__device__ void unrolled(const Visit& visit) {
  if constexpr (From < Count) {
    visit(Constant<From>{});
    unrolled<Count, From + 1>(visit);
  }
}

}  // namespace tconv::device
