// The small vocabulary of the public API: names, sizes of elements, dense views.
#include "tconv/tconv.hpp"

namespace tconv {
namespace {

/// Sizes and strides of a dense tensor, written into `tensor`.
template <class AnyTensor>
void make_dense(AnyTensor& tensor, DType dtype, const std::vector<std::int64_t>& sizes, Layout layout) {
  const int rank = int(sizes.size());
  if (sizes.size() > std::size_t(max_rank))
    throw InvalidArgument("sizes must have at most " + std::to_string(max_rank) + " entries, got " +
                          std::to_string(sizes.size()));
  tensor.dtype = dtype;
  tensor.rank = rank;
  std::int64_t stride = 1;
  const auto place = [&](int dim) {
    if (sizes[dim] < 0)
      throw InvalidArgument("sizes must not be negative, got " + std::to_string(sizes[dim]) + " in dimension " +
                            std::to_string(dim));
    tensor.sizes[dim] = sizes[dim];
    tensor.strides[dim] = stride;
    if (sizes[dim] > 0 && __builtin_mul_overflow(stride, sizes[dim], &stride))
      throw InvalidArgument("sizes describe more elements than 64 bits can count");
  };
  const bool channels_last = layout == Layout::channels_last && rank >= 2;
  if (channels_last) place(1);
  for (int dim = rank - 1; dim >= 0; --dim)
    if (!channels_last || dim != 1) place(dim);
}

}  // namespace

Tensor dense(void* data, DType dtype, const std::vector<std::int64_t>& sizes, Layout layout) {
  Tensor tensor;
  tensor.data = data;
  make_dense(tensor, dtype, sizes, layout);
  return tensor;
}

ConstTensor dense(const void* data, DType dtype, const std::vector<std::int64_t>& sizes, Layout layout) {
  ConstTensor tensor;
  tensor.data = data;
  make_dense(tensor, dtype, sizes, layout);
  return tensor;
}

const char* to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
  }
  return "unknown";
}

const char* to_string(Precision precision) noexcept {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::tf32:
      return "tf32";
  }
  return "unknown";
}

const char* to_string(Layout layout) noexcept {
  switch (layout) {
    case Layout::channels_first:
      return "channels_first";
    case Layout::channels_last:
      return "channels_last";
  }
  return "unknown";
}

const char* to_string(Pass pass) noexcept {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::grad_input:
      return "grad_input";
    case Pass::grad_weight:
      return "grad_weight";
    case Pass::grad_bias:
      return "grad_bias";
  }
  return "unknown";
}

std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::f64:
      return 8;
    case DType::f16:
    case DType::bf16:
      return 2;
  }
  return 0;
}

}  // namespace tconv
