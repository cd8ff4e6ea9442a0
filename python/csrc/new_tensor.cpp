#include "new_tensor.hpp"

#include <dlfcn.h>

#include <algorithm>

#include <torch/csrc/stable/stableivalue_conversions.h>

#include "call_failed.hpp"
#include "kept_memory.hpp"

namespace tconv::pytorch {

using std::int64_t;

namespace {

int32_t dtype_number(const TorchTensor& tensor) {
  int32_t dtype = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
  return dtype;
}

// As in PyTorch's torch/csrc/stable/c/shim.h, from 2.11 on.
using FromBlob = AOTITorchError (*)(void* data, int64_t rank, const int64_t* sizes, const int64_t* strides,
                                    int64_t storage_offset, int32_t dtype, int32_t device_type,
                                    int32_t device_index, AtenTensorHandle* tensor, int32_t layout,
                                    const uint8_t* opaque_metadata, int64_t opaque_metadata_size,
                                    void (*deleter)(void* data, void* context), void* context);

/// A CPU tensor in a kept block, to which it goes back; none where there is no block, or a PyTorch that takes
/// none.
std::optional<TorchTensor> new_in_block(int rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                                        int64_t bytes) {
  static const auto from_blob = [] {
    void* const pytorch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    return pytorch ? reinterpret_cast<FromBlob>(dlsym(pytorch, "torch_from_blob")) : nullptr;
  }();
  if (!from_blob) return std::nullopt;
  const Block block = take_block(bytes);
  if (!block.data) return std::nullopt;
  AtenTensorHandle handle = nullptr;
  const auto deleter = [](void* data, void* block_bytes) {
    return_block({data, reinterpret_cast<std::intptr_t>(block_bytes)});
  };
  if (from_blob(block.data, rank, sizes, strides, 0, dtype, aoti_torch_device_type_cpu(), -1, &handle,
                aoti_torch_layout_strided(), nullptr, 0, deleter,
                reinterpret_cast<void*>(block.bytes)) != TORCH_SUCCESS) {
    return_block(block);
    return std::nullopt;
  }
  return TorchTensor(handle);
}

TorchTensor new_strided(const TorchTensor& like, int rank, const int64_t* sizes, const int64_t* strides,
                        int32_t dtype, int64_t elements) {
  int32_t device_type = 0, device_index = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(like.get(), &device_index));
  const bool on_cuda = device_type == aoti_torch_device_type_cuda();
  const int64_t bytes = elements * static_cast<int64_t>(aoti_torch_dtype_element_size(dtype));
  const bool is_large = device_type == aoti_torch_device_type_cpu() && bytes >= fewest_block_bytes;
  if (is_large)
    if (auto tensor = new_in_block(rank, sizes, strides, dtype, bytes)) return *std::move(tensor);
  AtenTensorHandle handle = nullptr;
  const auto allocate = [&] {
    return aoti_torch_empty_strided(rank, sizes, strides, dtype, device_type, on_cuda ? device_index : 0,
                                    &handle) == TORCH_SUCCESS;
  };
  // Once more without what is kept on the CPU, which may be all that was in the way.
  if (!allocate() && (on_cuda || release_kept() == 0 || !allocate()))
    throw CallFailed("out of memory: PyTorch has no " + std::to_string(bytes) + " bytes on " +
                     (on_cuda ? "cuda:" + std::to_string(device_index) : "cpu"));
  const TorchTensor tensor(handle);
  if (is_large && tensor.mutable_data_ptr()) prefer_huge_pages(tensor.mutable_data_ptr(), bytes);
  return tensor;
}

}  // namespace

TorchTensor new_activation(const TorchTensor& like, int64_t outer, int64_t channels, int dims,
                           const Extents& spatial, bool channels_last) {
  const int rank = dims + 2;
  int64_t sizes[max_rank] = {outer, channels};
  int64_t strides[max_rank];
  for (int d = 0; d < dims; ++d) sizes[2 + d] = spatial[d];
  int64_t stride = 1;
  const auto place = [&](int dim) {
    strides[dim] = stride;
    stride *= std::max<int64_t>(sizes[dim], 1);
  };
  if (channels_last) place(1);
  for (int dim = rank - 1; dim >= 2; --dim) place(dim);
  if (!channels_last) place(1);
  place(0);
  // Strides count empty dimensions as one, memory does not.
  const int64_t elements = std::count(sizes, sizes + rank, 0) > 0 ? 0 : stride;
  return new_strided(like, rank, sizes, strides, dtype_number(like), elements);
}

TorchTensor new_vector(const TorchTensor& like, int64_t elements) {
  const int64_t one = 1;
  return new_strided(like, 1, &elements, &one, dtype_number(like), elements);
}

TorchTensor new_bytes(const TorchTensor& like, int64_t bytes) {
  const int64_t one = 1;
  return new_strided(like, 1, &bytes, &one, aoti_torch_dtype_uint8(), bytes);
}

}  // namespace tconv::pytorch
