#include "cuda_stream.hpp"

#include <dlfcn.h>

#include "tensor_view.hpp"

namespace tconv::pytorch::cuda {
namespace {

// Both as in PyTorch's torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h, which declare
// them for programs that are built with CUDA only.
using GetCurrentStream = AOTITorchError (*)(std::int32_t device, void** stream);
using SynchronizeStream = AOTITorchError (*)(void* stream, std::int32_t device);
// The CUDA driver's cuStreamIsCapturing; PyTorch has no function for it here.
using StreamIsCapturing = int (*)(void* stream, int* status);

template <class Function>
Function find(const char* library, int flags, const char* name) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL | flags);
  return handle ? reinterpret_cast<Function>(dlsym(handle, name)) : nullptr;
}

/// A function of the PyTorch that is running, never of another one that lies on the loader's path.
template <class Function>
Function find_in_pytorch(const char* name) {
  return find<Function>("libtorch_cuda.so", RTLD_NOLOAD, name);
}

}  // namespace

std::optional<void*> current_stream(std::int32_t device) {
  static const auto function = find_in_pytorch<GetCurrentStream>("aoti_torch_get_current_cuda_stream");
  if (!function) return std::nullopt;
  void* stream = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(function(device, &stream));
  return stream;
}

bool is_capturing(void* stream) {
  static const auto function = find<StreamIsCapturing>("libcuda.so.1", 0, "cuStreamIsCapturing");
  if (stream == nullptr) return false;  // the legacy default stream cannot be captured
  int status = 0;
  return !function || function(stream, &status) != 0 || status != 0;
}

void synchronize(void* stream, std::int32_t device) {
  static const auto function = find_in_pytorch<SynchronizeStream>("torch_cuda_stream_synchronize");
  if (!function) throw Unsupported("this PyTorch cannot be asked to wait for a CUDA stream");
  STABLE_TORCH_ERROR_CODE_CHECK(function(stream, device));
}

}  // namespace tconv::pytorch::cuda
