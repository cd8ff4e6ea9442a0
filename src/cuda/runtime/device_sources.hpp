// Texts embedded at build time (cmake/DeviceSources.cmake).
#pragma once

#include <vector>

namespace tconv::cuda {

struct DeviceSource {
  const char* name;  // as the sources include each other
  const char* text;
};

/// The kernels, src/cuda/kernels.
const std::vector<DeviceSource>& device_sources();
/// The frame of exported files, src/cuda/export.
const std::vector<DeviceSource>& export_templates();

}  // namespace tconv::cuda
