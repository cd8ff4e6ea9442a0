// Sizes of the march kernel (march_gemm.cuh): its sums, what it stages, shared memory and registers. Panels of x are
// those of the panel kernel, of one slice of x each (sizes/panel.cuh).
#pragma once

#include "sizes/panel.cuh"

namespace tconv::device {

/// The configuration of one slice of x: a box that is one slice deep.
constexpr GemmConfig slice_of(GemmConfig c) {
  c.box.d = 1;
  return c;
}

/// Output channels of a block: the rows of a slot of sums.
constexpr int slot_rows(const GemmConfig& c) { return c.rows / c.march; }
/// Positions of a slice that a block multiplies, in the order of the panel, halo included.
constexpr int march_positions(const GemmConfig& c) { return panel_rows * c.position_tiles * c.box_parts; }
/// The fewest that a box takes: from its first position to its last.
constexpr int march_span(const GemmConfig& c) { return (c.box.h - 1) * x_extent(slice_of(c)).w + c.box.w; }

// Staged outputs: of each channel one run of whole rows, or one for each row.
constexpr bool joins_rows(const GemmConfig& c) { return c.run_rows > 1; }
constexpr int march_runs(const GemmConfig& c) { return ceil_div(c.box.h, c.run_rows); }
/// Elements from one to the next: runs begin as they do in memory, up to a vector later.
constexpr int march_run_pitch(const GemmConfig& c) {
  const int v = store_vector(c);
  return round_up(c.run_rows * c.box.w + v - 1, v);
}
/// And from a channel to the next. A warp stages eight positions of four pairs of channels at once.
constexpr int march_channel_pitch(const GemmConfig& c) {
  const int elements = march_runs(c) * march_run_pitch(c), unit = element_bytes(c) == 2 ? 32 : 16;
  const int residue = element_bytes(c) == 2 ? 8 : 4;
  return elements + ((residue - elements) % unit + unit) % unit;
}
constexpr int march_staged_bytes(const GemmConfig& c) {
  return round_up(slot_rows(c) * march_channel_pitch(c) * element_bytes(c), 128);
}

/// Shared memory: weights, panels, staged outputs, bias and scale of each channel, barriers.
constexpr int march_barriers(const GemmConfig& c) { return 1 + 2 * c.panel_stages + 2 * c.stage_buffers; }
constexpr int march_shared_bytes(const GemmConfig& c) {
  return 128 + resident_bytes(c) + c.panel_stages * panel_bytes(slice_of(c)) + c.stage_buffers * march_staged_bytes(c) +
         slot_rows(c) * 8 + march_barriers(c) * 8;
}

// Registers of a thread: each kind of warpgroup asks for its own.
constexpr int march_threads(const GemmConfig& c) { return warpgroup_size * (c.loaders + 1 + c.box_parts); }
constexpr int march_entry_registers(const GemmConfig& c) { return min_of(65536 / march_threads(c) / 8 * 8, 248); }
constexpr int march_loading_registers(const GemmConfig& c) { return round_up(filling_registers(slice_of(c)) + 40, 8); }
constexpr int march_storing_registers = 48;
constexpr int march_multiplying_registers(const GemmConfig& c) {
  const int left = march_entry_registers(c) * (c.loaders + 1 + c.box_parts) - c.loaders * march_loading_registers(c) -
                   march_storing_registers;
  return min_of(left / c.box_parts / 8 * 8, 240);
}

}  // namespace tconv::device
