// What `tconv info` says of GPUs.
#pragma once

#include "tconv/tconv.hpp"

namespace tconv::cuda {

/// Adds the GPUs that can be used, and a line for each thing that is missing.
void describe(SystemInfo& info);

}  // namespace tconv::cuda
