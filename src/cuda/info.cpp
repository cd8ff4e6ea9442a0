#include "cuda/info.hpp"

#include "cuda/runtime/driver.hpp"
#include "cuda/runtime/nvrtc.hpp"

namespace tconv::cuda {

void describe(SystemInfo& info) {
  if (!find_driver()) {
    info.missing.push_back("cuda: " + why_no_driver());
    return;
  }
  for (int i = 0; i < device_count(); ++i) {
    const DeviceProperties& p = device_properties(i);
    const std::string capability = std::to_string(p.major) + "." + std::to_string(p.minor);
    if (p.major < 8) {
      info.missing.push_back("cuda:" + std::to_string(i) + ": " + p.name + " has compute capability " +
                             capability + "; tconv needs 8.0");
      continue;
    }
    info.devices.push_back({.device = {.kind = DeviceKind::cuda, .index = i},
                            .engine = "cuda",
                            .name = p.name,
                            .details = "compute capability " + capability + ", " +
                                       std::to_string(p.multiprocessors) + " multiprocessors, " +
                                       std::to_string(p.memory >> 30) + " GiB, " +
                                       (nvrtc_version().empty() ? "no NVRTC" : "NVRTC " + nvrtc_version())});
  }
  if (nvrtc_version().empty()) info.missing.push_back("cuda: " + why_no_nvrtc() + "; cached kernels still run");
}

}  // namespace tconv::cuda
