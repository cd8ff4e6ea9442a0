// What becomes of the sums of a row: scales are undone, and the bias is added.
#pragma once

#include "element.cuh"
#include "launch_params.cuh"
#include "mma/scale.cuh"

namespace tconv::device {

template <GemmConfig C>
struct RowOutput {
  static constexpr bool scaled = C.math == Math::half;  // others were scaled back when they were added
  float bias = 0, factor = 1;

  __device__ RowOutput() {}
  /// Of an output channel; -1: there is none. The scale of its weights is kept until that of x is known.
  __device__ RowOutput(const ForwardParams& p, int channel) {
    if (channel < 0) return;
    if (p.bias) bias = load_as_accumulator(static_cast<const ElementOf<C>*>(p.bias)[channel]);
    if constexpr (scaled) factor = p.scales[channel];
  }
  __device__ float operator()(float sum) const { return scaled ? fmaf(sum, factor, bias) : sum + bias; }
};

}  // namespace tconv::device
