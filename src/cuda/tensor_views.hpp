// Tensors as the kernels see them: dense views, strides as launches pass them, and what strides and alignment
// allow a kernel to load and store at once.
#pragma once

#include "cuda/heuristics/gemm_tiles.hpp"
#include "cuda/kernels/launch_params.cuh"
#include "layer/layer.hpp"

namespace tconv::cuda {

/// A dense five-dimensional view.
Tensor dense_view(void* data, DType dtype, std::int64_t batch, std::int64_t channels, const Extents& size,
                  Layout layout);

/// Strides of dimensions of size 1 are never stepped along.
inline std::int64_t step(const ConstTensor& tensor, std::size_t dimension) {
  return tensor.sizes[dimension] > 1 ? tensor.strides[dimension] : 0;
}

device::Strides5 strides_of(const ConstTensor& tensor);

/// Whether an image of one channel can be reached with 32 bits, and the next channel from it.
bool fits_image(const ConstTensor& tensor);
/// Of a tensor whose images fit.
device::ImageStrides image_strides(const ConstTensor& tensor);

/// How the tensor-core kernels can load x and store y of a layer.
Access access_of(const Geometry& geometry, const ConstTensor& x, const ConstTensor& y);
/// Where both are dense and aligned.
Access dense_access(const Geometry& geometry, const Shape& shape, DType dtype, Layout layout);

}  // namespace tconv::cuda
