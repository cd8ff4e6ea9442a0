// The CUDA driver, opened at run time. No CUDA header is needed to build, and no library is linked.
//
// Only what tconv calls is declared. Every call goes through check(), which turns a failure into a
// device error that names the driver's own error and says what was being done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tconv::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUfunction = struct CUfunc_st*;

enum DeviceAttribute : int {
  attribute_multiprocessors = 16,
  attribute_capability_major = 75,
  attribute_capability_minor = 76,
  attribute_shared_per_multiprocessor = 81,
  attribute_shared_per_block_optin = 97,
};
enum FunctionAttribute : int {
  function_registers = 4,
  function_local_bytes = 3,
  function_max_dynamic_shared = 8,
};

/// CUlaunchAttribute and CUlaunchConfig.
struct LaunchAttribute {
  int id;
  char unused[4];
  union {
    char bytes[64];
    int number;
  } value;
};
constexpr int launch_programmatic = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  CUstream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct Driver {
  int version = 0;  // as CUDA counts: 12030 is 12.3
  CUresult (*cuInit)(unsigned);
  CUresult (*cuDriverGetVersion)(int*);
  CUresult (*cuGetErrorName)(CUresult, const char**);
  CUresult (*cuGetErrorString)(CUresult, const char**);
  CUresult (*cuDeviceGetCount)(int*);
  CUresult (*cuDeviceGet)(CUdevice*, int);
  CUresult (*cuDeviceGetName)(char*, int, CUdevice);
  CUresult (*cuDeviceTotalMem)(std::size_t*, CUdevice);
  CUresult (*cuDeviceGetAttribute)(int*, int, CUdevice);
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice);
  CUresult (*cuCtxGetCurrent)(CUcontext*);
  CUresult (*cuCtxGetDevice)(CUdevice*);
  CUresult (*cuCtxPushCurrent)(CUcontext);
  CUresult (*cuCtxPopCurrent)(CUcontext*);
  CUresult (*cuLibraryLoadData)(CUlibrary*, const void*, int*, void**, unsigned, int*, void**, unsigned);
  CUresult (*cuLibraryUnload)(CUlibrary);
  CUresult (*cuLibraryGetKernel)(CUkernel*, CUlibrary, const char*);
  CUresult (*cuKernelSetAttribute)(int, int, CUkernel, CUdevice);
  CUresult (*cuKernelGetAttribute)(int*, int, CUkernel, CUdevice);
  CUresult (*cuKernelGetFunction)(CUfunction*, CUkernel);
  CUresult (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int*, CUfunction, int, std::size_t);
  CUresult (*cuLaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             CUstream, void**, void**);
  CUresult (*cuLaunchKernelEx)(const LaunchConfig*, CUfunction, void**, void**);
  CUresult (*cuTensorMapEncodeTiled)(void*, int, std::uint32_t, void*, const std::uint64_t*, const std::uint64_t*,
                                     const std::uint32_t*, const std::uint32_t*, int, int, int, int);
  // For tests and tools.
  CUresult (*cuMemAlloc)(CUdeviceptr*, std::size_t);
  CUresult (*cuMemFree)(CUdeviceptr);
  CUresult (*cuMemcpyHtoD)(CUdeviceptr, const void*, std::size_t);
  CUresult (*cuMemcpyDtoH)(void*, CUdeviceptr, std::size_t);
  CUresult (*cuMemsetD8)(CUdeviceptr, unsigned char, std::size_t);
  CUresult (*cuMemcpyDtoDAsync)(CUdeviceptr, CUdeviceptr, std::size_t, CUstream);
  CUresult (*cuCtxSynchronize)();
  CUresult (*cuEventCreate)(CUevent*, unsigned);
  CUresult (*cuEventRecord)(CUevent, CUstream);
  CUresult (*cuEventSynchronize)(CUevent);
  CUresult (*cuEventElapsedTime)(float*, CUevent, CUevent);

  /// Throws a device error unless `result` is success: "cuLaunchKernel failed while …: CUDA_ERROR_…".
  void check(CUresult result, const char* function, const std::string& doing) const;
};

/// The driver, or null where there is none; `why_no_driver()` then says why.
const Driver* find_driver();
const std::string& why_no_driver();
/// The driver; throws Unsupported where there is none.
const Driver& driver();

class KernelRecord;

/// What the planner needs to know of a device.
struct DeviceProperties {
  int index = 0;
  CUdevice device = 0;
  std::string name;
  int major = 0, minor = 0;
  int multiprocessors = 0;
  int shared_per_block = 0, shared_per_multiprocessor = 0;
  std::size_t memory = 0;
  // For exported layers: a kernel serves every size, x may be turned for it where `turns` says so, and weights are
  // packed one way, scaled or as they are.
  bool exported = false, turns = false;
  std::optional<bool> scaled;
  KernelRecord* record = nullptr;  // set where the device is not here: kernels are noted instead of loaded
};
int device_count();
/// Throws InvalidArgument for an index that does not exist.
const DeviceProperties& device_properties(int index);

/// Makes a context of the device current for a scope: the caller's, where it is one of that device;
/// else the device's primary context, which is what the CUDA runtime and PyTorch use.
class ContextScope {
 public:
  explicit ContextScope(const DeviceProperties& device);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace tconv::cuda
