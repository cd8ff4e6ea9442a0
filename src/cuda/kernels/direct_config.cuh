// The configuration of the direct kernels: few channels per group, where a layer is a copy with a few
// multiply-adds. Host and device compile this file; batch and lengths are not in it.
#pragma once

#include "integers.cuh"

namespace tconv::device {

struct DirectConfig {
  // The layer.
  int groups, group_in, group_out;
  Int3 kernel, stride, padding, dilation;

  // Memory.
  bool channels_last;  // lanes run over channels (direct_channels.cuh), else over positions (direct_rows.cuh)
  bool dense_weight;   // in the order in, out, depth, height, width
  int x_vector;        // elements of one load
  int y_vector;        // elements of one store
  bool staged;         // rows: outputs pass through shared memory, else a thread's are one aligned vector

  // What one thread computes: all phases of so many positions along the width and the height.
  int positions;
  int rows;      // 0: one row of outputs, whose taps along the height are found at run time
  int channels;  // output channels; groups where lanes run over channels
  int slots;     // channels last: threads side by side along the channels
  int blocks_per_sm;

  constexpr bool operator==(const DirectConfig&) const = default;
};

constexpr int direct_threads = 256;

/// The largest shift of the input along a dimension.
constexpr int reach_of(int kernel, int stride, int dilation) { return (kernel - 1) * dilation / stride; }

/// Rows of outputs of a thread.
constexpr int out_rows_of(const DirectConfig& c) { return c.rows ? c.rows * c.stride.h : 1; }

/// Channels last keeps the weights of the block's channels in shared memory.
constexpr int direct_shared_bytes(const DirectConfig& c, int accumulator_bytes) {
  return c.channels_last ? volume(c.kernel) * c.group_in * c.slots * c.channels * c.group_out * accumulator_bytes : 0;
}

}  // namespace tconv::device
