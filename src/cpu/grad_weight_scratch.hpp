// What a worker of grad-weight has to itself, shared by the files that divide and that multiply.
#pragma once

#include "cpu/gradients.hpp"

namespace tconv::cpu {

template <class Compute>
struct GradWeightBinding::Scratch {
  // Of dot products.
  Compute* x;  // [channel][position]
  Compute* g;  // [plane][channel][position]
  std::int64_t x_elements;
  std::int64_t g_elements;
  std::int64_t* runs;

  // Of outer products. One side fills vectors, the other panels of rows; gy has its planes in either.
  // A strip, what a kernel has of vectors, is contiguous: it is read from end to end.
  Compute* vectors;  // [strip][plane][position][channel]
  Compute* rows;     // [panel][plane][position][row]
  Compute* sums;     // [tap][row][channel]
  TapOffset* steps;  // the runs, as the kernel takes them
  std::int64_t vector_pitch;
  std::int64_t vector_elements;
  std::int64_t row_elements;
};

}  // namespace tconv::cpu
