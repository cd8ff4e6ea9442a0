#include "api/engines.hpp"

#include <fstream>

#include "api/thread_pool.hpp"
#include "cpu/engine.hpp"
#include "cuda/engine.hpp"
#include "cuda/info.hpp"

namespace tconv {
namespace {

std::string processor_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown processor";
}

}  // namespace

std::unique_ptr<EnginePlan> make_engine_plan(const Layer& layer, const Device& device) {
  switch (device.kind) {
    case DeviceKind::cpu:
      if (device.index != 0)
        throw InvalidArgument("device index must be 0 for the CPU, got " + std::to_string(device.index));
      return cpu::make_plan(layer);
    case DeviceKind::cuda:
      return cuda::make_plan(layer, device.index);
  }
  throw InvalidArgument("device kind must be cpu or cuda, got " + std::to_string(int(device.kind)));
}

void describe_engines(SystemInfo& info) {
  const int threads = default_pool_threads();
  info.devices.push_back({.device = {.kind = DeviceKind::cpu, .index = 0},
                          .engine = "cpu",
                          .name = processor_name(),
                          .details = cpu::instruction_set() + ", " + std::to_string(threads) +
                                     (threads == 1 ? " thread" : " threads")});
  cuda::describe(info);
}

}  // namespace tconv
