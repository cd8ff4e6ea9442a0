#include "tensor_view.hpp"

#include <torch/csrc/stable/stableivalue_conversions.h>

namespace tconv::pytorch {

using std::int64_t;

DType dtype_of(const TorchTensor& tensor) {
  // PyTorch's own numbering may differ between the version compiled against and the one running.
  static const int32_t f32 = aoti_torch_dtype_float32(), f64 = aoti_torch_dtype_float64(),
                       f16 = aoti_torch_dtype_float16(), bf16 = aoti_torch_dtype_bfloat16();
  int32_t dtype = -1;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
  if (dtype == f32) return DType::f32;
  if (dtype == f64) return DType::f64;
  if (dtype == bf16) return DType::bf16;
  if (dtype == f16) return DType::f16;
  throw Unsupported("tconv's operators take float32, float64, float16 and bfloat16 tensors only");
}

namespace {

template <class View>
View described(const TorchTensor& tensor) {
  View result;
  result.dtype = dtype_of(tensor);
  result.rank = static_cast<int>(tensor.dim());
  if (result.rank > max_rank) throw InvalidArgument("tensors of more than 5 dimensions are not supported");
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  for (int dim = 0; dim < result.rank; ++dim) {
    result.sizes[dim] = sizes[dim];
    result.strides[dim] = strides[dim];
  }
  return result;
}

}  // namespace

ConstTensor view(const TorchTensor& tensor) {
  auto result = described<ConstTensor>(tensor);
  result.data = tensor.const_data_ptr();
  return result;
}

Tensor mutable_view(const TorchTensor& tensor) {
  auto result = described<Tensor>(tensor);
  result.data = tensor.mutable_data_ptr();
  return result;
}

bool is_channels_last(const TorchTensor& tensor) {
  const auto rank = tensor.dim();
  if (rank != 4 && rank != 5) return false;
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  // Channels innermost, then width, height, depth and batch, each stride no smaller than what lies inside
  // it. Where sizes of one make the order ambiguous, PyTorch decides for channels first.
  if (strides[1] == 0) return false;
  int64_t inner = 0;
  for (int64_t place = 0; place < rank; ++place) {
    const int64_t dim = place == 0 ? 1 : place == rank - 1 ? 0 : rank - place;
    if (sizes[dim] == 0) return false;
    if (strides[dim] < inner) return false;
    if (dim == 0 && inner == strides[1]) return false;
    inner = strides[dim] * std::max<int64_t>(sizes[dim], 1);
  }
  return true;
}

std::string sizes_text(const TorchTensor& tensor) {
  std::string text = "[";
  for (const int64_t size : tensor.sizes()) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

}  // namespace tconv::pytorch
