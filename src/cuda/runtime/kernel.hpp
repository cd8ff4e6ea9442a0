// A compiled kernel: from the cache or from NVRTC, loaded once per process, launched on any stream.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/runtime/driver.hpp"

namespace tconv::cuda {

/// "sm_90a" for a Hopper GPU: architecture-specific instructions are there on the device it is named for.
std::string architecture_of(const DeviceProperties& device);

/// What to compile and how to load it.
struct KernelRequest {
  std::string source;
  std::string entry;
  int shared_bytes = 0;
  bool operator==(const KernelRequest&) const = default;
};

/// The kernels asked for on behalf of a device that is not here, each once, in the order they came.
class KernelRecord {
 public:
  virtual ~KernelRecord() = default;
  void add(const KernelRequest& request);
  std::vector<KernelRequest> requests() const;
  /// Whether the device that is not here takes tensor maps; a driver may refuse one.
  virtual bool takes_maps() const { return true; }
  /// Called in place of a launch.
  virtual void launch(const KernelRequest&, unsigned /*blocks*/, unsigned /*threads*/, const void* /*params*/) {}

 private:
  mutable std::mutex mutex_;
  std::vector<KernelRequest> requests_;
};

class Kernel {
 public:
  Kernel(const std::string& code, const KernelRequest& request, const DeviceProperties& device);
  /// A kernel of a device that is not here.
  Kernel(const KernelRequest& request, KernelRecord& record)
      : entry_(request.entry), absent_(std::make_unique<Absent>(Absent{request, record})) {}
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// A context of the device must be current. `Launch` has blocks and threads (kernels/launch_rules.cuh), and
  /// whether the kernel may begin while the one before it ends: from sm_90 on, it waits itself
  /// (kernels/ptx/launch.cuh).
  template <class Launch, class Params>
  void launch(const Launch& launch, const Params& params, void* stream) const {
    launch_bytes(launch.blocks, launch.threads, &params, stream, launch.early);
  }
  /// Of a kernel that does not wait itself: it begins when the one before it is complete.
  template <class Params>
  void launch(unsigned blocks, unsigned threads, const Params& params, void* stream) const {
    launch_bytes(blocks, threads, &params, stream, false);
  }

 private:
  void launch_bytes(unsigned blocks, unsigned threads, const void* params, void* stream, bool early) const;

  struct Absent {
    KernelRequest request;
    KernelRecord& record;
  };
  explicit Kernel(const std::string& entry) : entry_(entry) {}

  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  unsigned shared_bytes_ = 0;
  bool begins_early_ = false;
  std::string entry_;
  std::unique_ptr<const Absent> absent_;
};

/// The kernels of one process: the same source on the same device is compiled and loaded once. Several
/// requests compile in parallel.
std::vector<std::shared_ptr<const Kernel>> get_kernels(const std::vector<KernelRequest>& requests,
                                                       const DeviceProperties& device);
std::shared_ptr<const Kernel> get_kernel(const KernelRequest& request, const DeviceProperties& device);

/// Under which key the disk cache keeps the code of a source: what the source says, the device sources it may
/// include, and the compiler's options. Not the compiler's version: a machine without one must find the entry.
std::string cache_key(const std::string& source, const std::string& architecture);

}  // namespace tconv::cuda
