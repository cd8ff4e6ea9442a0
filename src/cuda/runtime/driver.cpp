#include "cuda/runtime/driver.hpp"

#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <vector>

#include "tconv/tconv.hpp"

namespace tconv::cuda {
namespace {

constexpr CUresult success = 0;
constexpr CUresult error_out_of_memory = 2;
constexpr int oldest_driver = 12000;  // cuLibrary*: kernels that belong to no context

struct Found {
  std::unique_ptr<Driver> driver;
  std::string missing;
};

Found open_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return {nullptr, "no NVIDIA driver: libcuda.so.1 was not found"};
  auto d = std::make_unique<Driver>();
  std::string absent;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function && absent.empty()) absent = name;
  };
  // Names with _v2 are the current versions of functions whose arguments once changed.
  load(d->cuInit, "cuInit");
  load(d->cuDriverGetVersion, "cuDriverGetVersion");
  load(d->cuGetErrorName, "cuGetErrorName");
  load(d->cuGetErrorString, "cuGetErrorString");
  load(d->cuDeviceGetCount, "cuDeviceGetCount");
  load(d->cuDeviceGet, "cuDeviceGet");
  load(d->cuDeviceGetName, "cuDeviceGetName");
  load(d->cuDeviceTotalMem, "cuDeviceTotalMem_v2");
  load(d->cuDeviceGetAttribute, "cuDeviceGetAttribute");
  load(d->cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  load(d->cuCtxGetCurrent, "cuCtxGetCurrent");
  load(d->cuCtxGetDevice, "cuCtxGetDevice");
  load(d->cuCtxPushCurrent, "cuCtxPushCurrent_v2");
  load(d->cuCtxPopCurrent, "cuCtxPopCurrent_v2");
  load(d->cuLibraryLoadData, "cuLibraryLoadData");
  load(d->cuLibraryUnload, "cuLibraryUnload");
  load(d->cuLibraryGetKernel, "cuLibraryGetKernel");
  load(d->cuKernelSetAttribute, "cuKernelSetAttribute");
  load(d->cuKernelGetAttribute, "cuKernelGetAttribute");
  load(d->cuKernelGetFunction, "cuKernelGetFunction");
  load(d->cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  load(d->cuLaunchKernel, "cuLaunchKernel");
  load(d->cuLaunchKernelEx, "cuLaunchKernelEx");
  load(d->cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled");
  load(d->cuMemAlloc, "cuMemAlloc_v2");
  load(d->cuMemFree, "cuMemFree_v2");
  load(d->cuMemcpyHtoD, "cuMemcpyHtoD_v2");
  load(d->cuMemcpyDtoH, "cuMemcpyDtoH_v2");
  load(d->cuMemsetD8, "cuMemsetD8_v2");
  load(d->cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  load(d->cuCtxSynchronize, "cuCtxSynchronize");
  load(d->cuEventCreate, "cuEventCreate");
  load(d->cuEventRecord, "cuEventRecord");
  load(d->cuEventSynchronize, "cuEventSynchronize");
  load(d->cuEventElapsedTime, "cuEventElapsedTime");

  int version = 0;
  if (d->cuDriverGetVersion) d->cuDriverGetVersion(&version);
  d->version = version;
  const std::string found = "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  if (version < oldest_driver) return {nullptr, "the NVIDIA driver supports " + found + "; tconv needs CUDA 12.0"};
  if (!absent.empty()) return {nullptr, "the NVIDIA driver (" + found + ") has no function " + absent};
  if (const CUresult result = d->cuInit(0); result != success) {
    const char* name = nullptr;
    d->cuGetErrorName(result, &name);
    return {nullptr,
            std::string("the NVIDIA driver does not start: ") + (name ? name : std::to_string(result).c_str())};
  }
  int count = 0;
  if (d->cuDeviceGetCount(&count) != success || count == 0) return {nullptr, "the NVIDIA driver sees no GPU"};
  return {std::move(d), ""};
}

const Found& found() {
  // As everything static here never destroyed: other threads may still run kernels while the process exits.
  static const Found* const result = new Found(open_driver());
  return *result;
}

}  // namespace

const Driver* find_driver() {
  return found().driver.get();
}
const std::string& why_no_driver() {
  return found().missing;
}

const Driver& driver() {
  if (const Driver* d = find_driver()) return *d;
  throw Unsupported("no CUDA device can be used: " + why_no_driver());
}

void Driver::check(CUresult result, const char* function, const std::string& doing) const {
  if (result == success) return;
  const char *name = nullptr, *text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  throw Error(result == error_out_of_memory ? ErrorCode::out_of_memory : ErrorCode::device_error,
              std::string(function) + " failed while " + doing + ": " +
                  (name ? name : "error " + std::to_string(result)) +
                  (text ? std::string(" (") + text + ")" : ""));
}

int device_count() {
  int count = 0;
  driver().check(driver().cuDeviceGetCount(&count), "cuDeviceGetCount", "counting devices");
  return count;
}

const DeviceProperties& device_properties(int index) {
  static std::mutex mutex;
  static auto& known = *new std::vector<std::unique_ptr<DeviceProperties>>;
  const Driver& d = driver();
  const int count = device_count();
  if (index < 0 || index >= count)
    throw InvalidArgument("device index must be below " + std::to_string(count) + ", the number of GPUs, got " +
                          std::to_string(index));
  const std::lock_guard lock(mutex);
  known.resize(std::size_t(count));
  auto& slot = known[std::size_t(index)];
  if (!slot) {
    auto p = std::make_unique<DeviceProperties>();
    p->index = index;
    const std::string doing = "asking about device " + std::to_string(index);
    d.check(d.cuDeviceGet(&p->device, index), "cuDeviceGet", doing);
    char name[256] = {};
    d.check(d.cuDeviceGetName(name, sizeof name, p->device), "cuDeviceGetName", doing);
    p->name = name;
    d.check(d.cuDeviceTotalMem(&p->memory, p->device), "cuDeviceTotalMem", doing);
    const auto attribute = [&](int which) {
      int value = 0;
      d.check(d.cuDeviceGetAttribute(&value, which, p->device), "cuDeviceGetAttribute", doing);
      return value;
    };
    p->major = attribute(attribute_capability_major);
    p->minor = attribute(attribute_capability_minor);
    p->multiprocessors = attribute(attribute_multiprocessors);
    p->shared_per_block = attribute(attribute_shared_per_block_optin);
    p->shared_per_multiprocessor = attribute(attribute_shared_per_multiprocessor);
    slot = std::move(p);
  }
  return *slot;
}

ContextScope::ContextScope(const DeviceProperties& device) {
  if (device.record) return;
  const Driver& d = driver();
  CUcontext current = nullptr;
  d.check(d.cuCtxGetCurrent(&current), "cuCtxGetCurrent", "looking for the caller's context");
  if (current) {
    CUdevice of = -1;
    d.check(d.cuCtxGetDevice(&of), "cuCtxGetDevice", "looking for the caller's context");
    if (of == device.device) return;
  }
  // Retained once per device and kept: other users of the primary context come and go.
  static std::mutex mutex;
  static auto& primary = *new std::vector<CUcontext>;
  CUcontext context;
  {
    const std::lock_guard lock(mutex);
    if (primary.size() <= std::size_t(device.index)) primary.resize(std::size_t(device.index) + 1);
    CUcontext& slot = primary[std::size_t(device.index)];
    if (!slot)
      d.check(d.cuDevicePrimaryCtxRetain(&slot, device.device), "cuDevicePrimaryCtxRetain",
              "opening device " + std::to_string(device.index));
    context = slot;
  }
  d.check(d.cuCtxPushCurrent(context), "cuCtxPushCurrent", "entering device " + std::to_string(device.index));
  pushed_ = true;
}

ContextScope::~ContextScope() {
  if (!pushed_) return;
  CUcontext popped;
  driver().cuCtxPopCurrent(&popped);
}

}  // namespace tconv::cuda
