// The microkernel of forward and grad-input: a register tile of `rows` × `vectors` sums, to which every
// (tap, channel) adds the outer product of a column of packed weights and a run of source positions.
//
//   sum[row][column] += weight[tap.weight + channel][row] · source[tap.source + channel·channel_stride + column]
//
// A tap is a shift of the source pointer, so one tile of source serves all taps. Of pairs of bf16 numbers
// (bf16_pairs.hpp) a channel here is two of the layer's.
#pragma once

#include <cstdint>

#include "cpu/operand.hpp"

namespace tconv::cpu {

struct TapOffset {
  std::int64_t source;  // elements from OuterProduct::source
  std::int64_t weight;  // columns from OuterProduct::weight
};

template <class T>
struct OuterProduct {
  const T* weight;  // columns of as many rows as the kernel has
  const T* source;
  std::int64_t channel_stride;  // of the source
  std::int64_t channels;
  std::int64_t weight_step = 1;  // columns from a channel to the next
  const TapOffset* taps;
  std::int64_t tap_count;
  SumOf<T>* sums;          // [row][column]
  std::int64_t row_pitch;  // of the sums
  const SumOf<T>* start;   // [row]: what the sums start from; null: from what they hold
};

template <class T>
using OuterProductKernel = void (*)(const OuterProduct<T>&);

/// The kernels of the instruction set in use. A kernel of fewer rows is wider, so that enough sums are in
/// flight to hide the latency of a multiply-add.
template <class T>
struct OuterProductKernels {
  static constexpr int max_rows = 8;
  static constexpr int max_vectors = 8;
  int lanes;                                                    // elements of a vector
  int rows;                                                     // of the largest tile, at most max_rows
  int widest[max_rows + 1];                                     // vectors of the widest kernel of that many rows
  OuterProductKernel<T> kernel[max_rows + 1][max_vectors + 1];  // [rows][vectors]; null where not built
};

template <class T>
const OuterProductKernels<T>& outer_product_kernels();

}  // namespace tconv::cpu
