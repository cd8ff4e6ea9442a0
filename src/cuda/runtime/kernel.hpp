// A compiled kernel: from the cache or from NVRTC, loaded once per process, launched on any stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/runtime/driver.hpp"

namespace tconv::cuda {

/// "sm_90a" for a Hopper GPU: architecture-specific instructions are there on the device it is named for.
std::string architecture_of(const DeviceProperties& device);

/// The machine code of `source`: from the disk cache, else compiled and put there.
std::string machine_code(const std::string& source, const std::string& architecture);

class Kernel {
 public:
  Kernel(const std::string& code, const std::string& entry, int shared_bytes, const DeviceProperties& device);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// A context of the device must be current.
  template <class Params>
  void launch(unsigned blocks, unsigned threads, const Params& params, void* stream) const {
    launch_bytes(blocks, threads, &params, stream);
  }

 private:
  void launch_bytes(unsigned blocks, unsigned threads, const void* params, void* stream) const;

  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  unsigned shared_bytes_;
  std::string entry_;
};

/// What to compile and how to load it.
struct KernelRequest {
  std::string source;
  std::string entry;
  int shared_bytes = 0;
};

/// The kernels of one process: the same source on the same device is compiled and loaded once. Several
/// requests compile in parallel.
std::vector<std::shared_ptr<const Kernel>> get_kernels(const std::vector<KernelRequest>& requests,
                                                       const DeviceProperties& device);
std::shared_ptr<const Kernel> get_kernel(const KernelRequest& request, const DeviceProperties& device);

}  // namespace tconv::cuda
