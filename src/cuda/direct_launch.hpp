// The direct kernels on the host: which one serves a call and what a thread computes.
#pragma once

#include <optional>

#include "cuda/kernels/direct_config.cuh"
#include "layer/layer.hpp"

namespace tconv::cuda {

/// Whether a group has so few channels that tensor cores, which multiply 16 rows by 8 words whether they are there
/// or not, are behind the direct kernels.
bool few_channels(const Geometry& geometry);

/// What a call's tensors allow.
struct DirectAccess {
  bool channels_last = false;
  bool dense_weight = true;
  bool y_rows = true;              // outputs of a row are contiguous
  int x_vector = 1, y_vector = 1;  // elements of one load and store along the contiguous dimension

  bool operator==(const DirectAccess&) const = default;
};

/// The weight is dense unless the caller says otherwise.
DirectAccess direct_access(const Geometry& geometry, const ConstTensor& x, const ConstTensor& y);

/// Nothing where a direct kernel would need too many registers: very large strides and kernels.
std::optional<device::DirectConfig> direct_config(const Geometry& geometry, DType dtype,
                                                  const DirectAccess& access);

}  // namespace tconv::cuda
