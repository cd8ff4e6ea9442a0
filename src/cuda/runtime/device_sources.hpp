// The device sources, embedded at build time (cmake/EmbedKernels.cmake).
#pragma once

#include <vector>

namespace tconv::cuda {

struct DeviceSource {
  const char* name;  // as the sources include each other
  const char* text;
};

const std::vector<DeviceSource>& device_sources();

}  // namespace tconv::cuda
