// Devices that are not here, known by their architecture: what the planner must know to choose kernels for
// them, so that those can be compiled ahead of time or exported.
#pragma once

#include <string>
#include <vector>

#include "cuda/runtime/driver.hpp"

namespace tconv::cuda {

/// "sm_80", "sm_86", …, oldest first.
std::vector<std::string> known_architectures();

/// A device of an architecture, with as many multiprocessors as its largest common model or as many as given.
/// Throws InvalidArgument for an architecture that is not known.
DeviceProperties absent_device(const std::string& architecture, int multiprocessors = 0);

}  // namespace tconv::cuda
