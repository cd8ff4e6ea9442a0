// Launches for a device that is not here, run on the CPU: every kernel is compiled by the machine's own compiler
// in front of ../emulation, and run fiber by fiber.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "cuda/runtime/kernel.hpp"

namespace tconv::cuda::emulated {

class Emulator : public KernelRecord {
 public:
  Emulator();
  ~Emulator() override;

  bool refuses_maps = false;            // as a driver may
  std::map<std::string, int> launched;  // kernels, by entry

  bool takes_maps() const override { return !refuses_maps; }
  void launch(const KernelRequest& request, unsigned blocks, unsigned threads, const void* params) override;

 private:
  using Launch = void (*)(unsigned, unsigned, const void*);

  Launch compiled(const KernelRequest& request);
  void compile(const std::string& source, const std::string& name) const;

  std::filesystem::path folder_;
  std::string sources_;  // all that kernels include
  std::map<std::string, Launch> launches_;
};

}  // namespace tconv::cuda::emulated
