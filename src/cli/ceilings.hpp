// What this machine can do at most: bytes copied and multiply-adds done per second, measured now.
#pragma once

#include "tconv/tconv.hpp"

namespace tconv::cli {

struct Ceilings {
  double copy_bytes_per_second = 0;  // read and written bytes of a large copy, all threads
  double flops_per_second = 0;       // 2 × multiply-adds of a matrix product that lives in L1, all threads
};

/// Takes about `seconds`. 16-bit types compute in fp32, so they share its ceiling.
Ceilings measure_ceilings(Executor& executor, DType dtype, double seconds = 1.0);

/// The least time work can take, and which ceiling sets it.
struct Floor {
  double seconds = 0;
  bool memory_bound = false;
};
Floor floor_of(const Ceilings& ceilings, double flops, double bytes);

}  // namespace tconv::cli
