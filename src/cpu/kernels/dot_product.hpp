// The microkernel of grad-weight: a register tile of dot products over positions,
//
//   sums[row·row_pitch + column] += Σ_position x[row][position] · g[column][position]
//
// where a row is an input channel and a column is an output channel seen through one tap.
#pragma once

#include <cstdint>

namespace tconv::cpu {

template <class T>
struct DotProduct {
  static constexpr int max_columns = 6;
  const T* x;
  std::int64_t x_pitch;      // between rows
  const T* g[max_columns];   // one pointer a column
  const std::int64_t* runs;  // offset of each run of positions, the same in x and g
  std::int64_t run_count;
  std::int64_t run_length;  // positions, a multiple of the vector length
  T* sums;
  std::int64_t row_pitch;
};

template <class T>
using DotProductKernel = void (*)(const DotProduct<T>&);

template <class T>
struct DotProductKernels {
  static constexpr int max_rows = 4;
  static constexpr int max_columns = DotProduct<T>::max_columns;
  int lanes;                                                  // elements of a vector
  int rows;                                                   // of the largest tile
  int columns;                                                // of the largest tile
  DotProductKernel<T> kernel[max_rows + 1][max_columns + 1];  // [rows][columns]; null where not built
};

template <class T>
const DotProductKernels<T>& dot_product_kernels();

}  // namespace tconv::cpu
