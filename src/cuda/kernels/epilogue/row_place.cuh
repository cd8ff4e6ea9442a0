// Rows of the product as outputs.
#pragma once

#include "tile.cuh"

namespace tconv::device {

/// The phase along the width that a row of a line has; -1: it is padding.
template <GemmConfig C>
__device__ int phase_of_slot(int slot) {
  if (C.width_slots > C.width_phases && slot >= C.width_phases) return -1;
  int phase = slot;
  if constexpr (C.width_phases < C.stride.w) {
#pragma unroll
    for (int i = 0; i < C.width_phases; ++i)
      if (slot == i) phase = phase_with_taps(C, i);
  }
  return phase;
}

/// A row of a wide block as a line and the phase of an output along the width.
template <GemmConfig C>
struct RowPlace {
  int line, phase;
  __device__ explicit RowPlace(int place) {
    constexpr int slots = C.width_slots;
    const int row = C.row_pairs ? row_at_place(place) : place;
    if constexpr (C.channel_rows) {
      constexpr int channels = C.channels_per_block;
      line = row / (channels * slots) * channels + row % channels;
      phase = phase_of_slot<C>(row / channels % slots);
    } else {
      line = row / slots, phase = phase_of_slot<C>(row % slots);
    }
  }
};

/// A line of a wide block: its channel, and its phases along depth and height.
template <GemmConfig C, class Tables>
struct BlockLine {
  int channel, phase_d, phase_h;
  bool exists;
  __device__ BlockLine(const Tile& tile, int index) {
    const u32 entry = index < lines_of_block(C) ? Tables::line(tile.type, index) : 0xffffffff;
    const int local = int(entry & 0xffff) + tile.channel_block * C.channels_per_block;
    channel = tile.group * C.group_out + local;
    constexpr Int3 first = first_phase(C);
    phase_d = first.d + int(entry >> 16 & 0xff), phase_h = first.h + int(entry >> 24);
    exists = entry != 0xffffffff && local < C.group_out;
  }
};

}  // namespace tconv::device
