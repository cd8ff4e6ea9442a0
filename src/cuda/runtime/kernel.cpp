#include "cuda/runtime/kernel.hpp"

#include <algorithm>
#include <future>
#include <map>

#include "cuda/runtime/cache.hpp"
#include "cuda/runtime/device_sources.hpp"
#include "cuda/runtime/notice.hpp"
#include "cuda/runtime/nvrtc.hpp"
#include "cuda/runtime/side_by_side.hpp"
#include "tconv/tconv.hpp"

namespace tconv::cuda {
namespace {

/// Everything the embedded sources say, once per process. Never destroyed, as the registry below.
const std::string& sources_digest() {
  static const std::string* const value = [] {
    std::string all;
    for (const DeviceSource& file : device_sources()) all += file.name, all += '\0', all += file.text, all += '\0';
    return new std::string(digest(all));
  }();
  return *value;
}

using SharedKernel = std::shared_ptr<const Kernel>;

/// Compiles a source and keeps the code for the next process.
std::string compile(const std::string& source, const std::string& architecture, const std::string& key) {
  if (nvrtc_version().empty())
    throw Unsupported("a kernel is not in the cache (" + cache_directory() + ") and cannot be compiled: " +
                      why_no_nvrtc() + "; `tconv compile` fills the cache on a machine that has NVRTC");
  const std::string code = nvrtc_compile(source, architecture).binary;
  const std::error_code error = write_cache(key, code);
  if (error && cache_wanted())
    notice("compiled kernels are not kept for the next process: " +
           (cache_directory().empty() ? "neither TCONV_CACHE_DIR nor HOME is set"
                                      : "cannot write to " + cache_directory() + ": " + error.message()));
  return code;
}

SharedKernel load(const KernelRequest& request, const DeviceProperties& device) {
  const std::string architecture = architecture_of(device), key = cache_key(request.source, architecture);
  const ContextScope context(device);
  const auto loaded = [&](const std::string& code) {
    return std::make_shared<const Kernel>(code, request, device);
  };
  if (const auto cached = read_cache(key)) try {
      return loaded(*cached);
    } catch (const Error& error) {
      // The driver can be older than the compiler that made the entry.
      if (error.code() != ErrorCode::device_error || nvrtc_version().empty()) throw;
      notice("a cached kernel is compiled again: " + std::string(error.what()));
    }
  return loaded(compile(request.source, architecture, key));
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_future<SharedKernel>> kernels;
};

Registry& registry() {
  static Registry* instance = new Registry;  // lives as long as the driver: no unloading at exit
  return *instance;
}

/// A kernel that others may wait for already: its promise is kept, come what may.
struct Loading {
  const KernelRequest& request;
  std::string key;
  std::promise<SharedKernel> promise;

  void keep(const DeviceProperties& device) {
    try {
      promise.set_value(load(request, device));
    } catch (...) {
      promise.set_exception(std::current_exception());
      const std::lock_guard lock(registry().mutex);
      registry().kernels.erase(key);  // a later try may succeed
    }
  }
};

}  // namespace

std::string architecture_of(const DeviceProperties& device) {
  const std::string number = std::to_string(device.major * 10 + device.minor);
  return "sm_" + number + (device.major >= 9 ? "a" : "");
}

std::string cache_key(const std::string& source, const std::string& architecture) {
  std::string identity = source + '\0' + sources_digest();
  for (const std::string& option : nvrtc_options(architecture)) identity += '\0' + option;
  return digest(identity);
}

Kernel::Kernel(const std::string& code, const KernelRequest& request, const DeviceProperties& device)
    : Kernel(request.entry) {  // delegated: the destructor runs, whatever fails below
  const auto& [source, entry, shared_bytes] = request;
  shared_bytes_ = unsigned(shared_bytes);
  const Driver& d = driver();
  constexpr int captures_early_launches = 12030;  // graphs have edges for them since
  begins_early_ = device.major >= 9 && d.version >= captures_early_launches;
  const std::string doing = "loading kernel " + entry;
  d.check(d.cuLibraryLoadData(&library_, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
          "cuLibraryLoadData", doing);
  d.check(d.cuLibraryGetKernel(&kernel_, library_, entry.c_str()), "cuLibraryGetKernel", doing);
  if (shared_bytes > 48 * 1024)
    d.check(d.cuKernelSetAttribute(function_max_dynamic_shared, shared_bytes, kernel_, device.device),
            "cuKernelSetAttribute", doing + " with " + std::to_string(shared_bytes) + " bytes of shared memory");
}

Kernel::~Kernel() {
  if (library_) driver().cuLibraryUnload(library_);
}

void Kernel::launch_bytes(unsigned blocks, unsigned threads, const void* params, void* stream, bool early) const {
  if (absent_) return absent_->record.launch(absent_->request, blocks, threads, params);
  const Driver& d = driver();
  void* arguments[] = {const_cast<void*>(params)};
  if (early && begins_early_) {
    LaunchAttribute attribute{.id = launch_programmatic, .unused = {}, .value = {}};
    attribute.value.number = 1;
    const LaunchConfig config{.grid = {blocks, 1, 1},
                              .block = {threads, 1, 1},
                              .shared_bytes = shared_bytes_,
                              .stream = static_cast<CUstream>(stream),
                              .attributes = &attribute,
                              .attribute_count = 1};
    return d.check(d.cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel_), arguments, nullptr),
                   "cuLaunchKernelEx", "launching kernel " + entry_);
  }
  d.check(d.cuLaunchKernel(reinterpret_cast<CUfunction>(kernel_), blocks, 1, 1, threads, 1, 1, shared_bytes_,
                           static_cast<CUstream>(stream), arguments, nullptr),
          "cuLaunchKernel", "launching kernel " + entry_);
}

void KernelRecord::add(const KernelRequest& request) {
  const std::lock_guard lock(mutex_);
  if (std::find(requests_.begin(), requests_.end(), request) == requests_.end()) requests_.push_back(request);
}

std::vector<KernelRequest> KernelRecord::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::vector<SharedKernel> get_kernels(const std::vector<KernelRequest>& requests, const DeviceProperties& device) {
  if (device.record) {
    std::vector<SharedKernel> kernels;
    for (const KernelRequest& request : requests) {
      device.record->add(request);
      kernels.push_back(std::make_shared<const Kernel>(request, *device.record));
    }
    return kernels;
  }
  std::vector<std::shared_future<SharedKernel>> pending;
  std::vector<Loading> mine;  // that nobody has asked for before
  pending.reserve(requests.size()), mine.reserve(requests.size());
  for (const KernelRequest& request : requests) {
    Loading loading{
        request, digest(request.source) + "/" + request.entry + "/" + std::to_string(device.index), {}};
    std::shared_future<SharedKernel> future = loading.promise.get_future().share();
    const std::lock_guard lock(registry().mutex);
    const auto [at, inserted] = registry().kernels.try_emplace(loading.key, std::move(future));
    pending.push_back(at->second);
    if (inserted) mine.push_back(std::move(loading));
  }
  // Each in a thread of its own, a single one as well: the calling thread may be capturing a graph, where the
  // driver allows it less.
  side_by_side(mine.size(), [&](std::size_t i) { mine[i].keep(device); });
  std::vector<SharedKernel> kernels;
  for (auto& future : pending) kernels.push_back(future.get());
  return kernels;
}

SharedKernel get_kernel(const KernelRequest& request, const DeviceProperties& device) {
  return get_kernels({request}, device).front();
}

}  // namespace tconv::cuda
