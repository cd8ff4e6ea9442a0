#include "cuda/runtime/targets.hpp"

#include "tconv/tconv.hpp"

namespace tconv::cuda {
namespace {

struct Target {
  const char* architecture;
  const char* model;
  int major, minor, multiprocessors;
  int shared_per_block, shared_per_multiprocessor;  // KiB
};

constexpr Target targets[] = {
    {"sm_80", "A100", 8, 0, 108, 163, 164},          {"sm_86", "RTX A6000", 8, 6, 84, 99, 100},
    {"sm_87", "Jetson Orin", 8, 7, 16, 163, 164},    {"sm_89", "L40S", 8, 9, 142, 99, 100},
    {"sm_90a", "H100 or H200", 9, 0, 132, 227, 228}, {"sm_100a", "B200", 10, 0, 148, 227, 228},
    {"sm_103a", "B300", 10, 3, 148, 227, 228},       {"sm_120a", "RTX 5090", 12, 0, 170, 99, 100},
};

}  // namespace

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Target& target : targets) names.push_back(target.architecture);
  return names;
}

DeviceProperties absent_device(const std::string& architecture, int multiprocessors) {
  std::string known;
  for (const Target& target : targets) {
    known += (known.empty() ? "" : ", ") + std::string(target.architecture);
    if (architecture != target.architecture) continue;
    DeviceProperties device;
    device.index = -1;
    device.name = target.model;
    device.major = target.major, device.minor = target.minor;
    device.multiprocessors = multiprocessors > 0 ? multiprocessors : target.multiprocessors;
    device.shared_per_block = target.shared_per_block * 1024;
    device.shared_per_multiprocessor = target.shared_per_multiprocessor * 1024;
    return device;
  }
  throw InvalidArgument("architecture must be one of " + known + ", got '" + architecture + "'");
}

}  // namespace tconv::cuda
