// Rows of the product as outputs.
#pragma once

#include "gemm_config.cuh"

namespace tconv::device {

/// A row of a wide block as a line and the phase of an output along the width.
template <GemmConfig C>
struct RowPlace {
  int line, phase;  // no phase: -1, a row of padding
  __device__ explicit RowPlace(int row) {
    constexpr int phases = C.width_phases, slots = C.width_slots;
    int index;
    if constexpr (C.channel_rows) {
      constexpr int channels = C.channels_per_block;
      index = row / channels % phases;
      line = row / (channels * phases) * channels + row % channels;
    } else {
      index = row % slots, line = row / slots;
    }
    phase = index;
    if constexpr (phases < C.stride.w) {
#pragma unroll
      for (int i = 0; i < phases; ++i)
        if (index == i) phase = phase_with_taps(C, i);
    }
    if (slots > phases && index >= phases) phase = -1;
  }
};

/// Neighbouring rows are neighbouring channels that memory has together.
template <GemmConfig C>
constexpr bool rows_in_pairs =
    (C.y_channels >= 2 && C.channel_rows) && C.channels_per_block % 2 == 0 && C.group_out % 2 == 0;

}  // namespace tconv::device
