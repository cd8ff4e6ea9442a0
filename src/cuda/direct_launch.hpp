// The direct kernels on the host: which one serves a call, what a thread computes, how it is launched.
#pragma once

#include <optional>

#include "cuda/kernels/direct_config.cuh"
#include "cuda/kernels/launch_params.cuh"
#include "layer/layer.hpp"

namespace tconv::cuda {

/// What a call's tensors allow.
struct DirectAccess {
  bool channels_last = false;
  bool dense_weight = true;
  int x_vector = 1, y_vector = 1;  // elements of one load and store along the contiguous dimension

  bool operator==(const DirectAccess&) const = default;
};

/// The weight is dense unless the caller says otherwise.
DirectAccess direct_access(const Geometry& geometry, const ConstTensor& x, const ConstTensor& y);
/// In the order in, out, depth, height, width.
bool is_dense(const ConstTensor& weight);

/// Nothing where a direct kernel would need too many registers: very large strides and kernels.
std::optional<device::DirectConfig> direct_config(const Geometry& geometry, DType dtype,
                                                  const DirectAccess& access);

/// Sizes and how the work is cut; pointers and strides are the caller's to fill in.
device::DirectParams direct_params(const device::DirectConfig& config, DType dtype, const Shape& shape);

unsigned direct_blocks(const device::DirectConfig& config, const device::DirectParams& params,
                       int multiprocessors);

}  // namespace tconv::cuda
