// Who does what in a block of the march kernel, and its shared memory.
#pragma once

#include "ptx/async_copy.cuh"
#include "ptx/barrier.cuh"
#include "ptx/launch.cuh"
#include "sizes/march.cuh"

namespace tconv::device {

/// The first warpgroups fill panels, the next one stores, the others are members that multiply.
template <GemmConfig C>
struct MarchRoles {
  static constexpr int loaders = panel_loaders(C), storing = loaders, multiplying = storing + warpgroup_size;
  __device__ static int team() { return 0; }
  __device__ static int member() { return (int(threadIdx.x) - multiplying) / warpgroup_size; }

  struct Loaders {
    __device__ static int index() { return threadIdx.x; }
    __device__ static void sync() { ptx::named_sync(1, loaders); }
  };
  __device__ static void wait_for_previous() { ptx::wait_for_previous(); }
  /// Who stores and who multiplies, once: the channels of the block are described.
  __device__ static void channels_described() { ptx::named_sync(2, warpgroup_size * (1 + C.box_parts)); }
};

/// What becomes of the sums of a channel.
struct ChannelOutput {
  float bias, scale;  // of its weights, where they were scaled: what undoes that
};

template <GemmConfig C>
struct MarchShared {
  u32 weights;
  unsigned char *panels, *staged;
  ChannelOutput* outputs;
  u32 barriers;
  __device__ MarchShared() {
    extern __shared__ __align__(128) unsigned char memory[];
    weights = ptx::shared_address(memory);
    panels = memory + resident_bytes(C);
    staged = panels + C.panel_stages * panel_bytes(slice_of(C));
    outputs = reinterpret_cast<ChannelOutput*>(staged + C.stage_buffers * march_staged_bytes(C));
    barriers = ptx::shared_address(outputs + slot_rows(C));
  }
  __device__ u32 weights_resident() const { return barriers; }
  __device__ u32 panel_full(int slot) const { return barriers + (1 + slot) * 8; }
  __device__ u32 panel_empty(int slot) const { return panel_full(C.panel_stages + slot); }
  __device__ u32 staged_full(int buffer) const { return panel_full(2 * C.panel_stages + buffer); }
  __device__ u32 staged_empty(int buffer) const { return staged_full(C.stage_buffers + buffer); }
};

}  // namespace tconv::device
