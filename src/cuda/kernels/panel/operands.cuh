// The operands of the panel kernel's products: descriptors of weights and of x in shared memory, and where the steps of
// a tile find them. Steps are taken in groups whose products are issued together, a slab of weights each.
#pragma once

#include "panel/shared.cuh"
#include "panel/weights.cuh"
#include "ptx/wgmma.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelOperands {
  static constexpr int group_steps = C.steps_per_slab;
  static constexpr int step_bytes = weight_parts(C) * row_step_bytes(C);
  static constexpr bool resident = C.resident_steps > 0, paired = C.chunk_words < 8;
  using Roles = PanelRoles<C>;
  using Shared = PanelShared<C>;
  using Weights = PanelWeights<C, Tables>;

  /// The descriptor of an operand, so many bytes further: a constant away, since a product waits for each value
  /// that has to be made uniform first.
  __device__ static u64 further(u64 operand, int bytes) { return operand + u64(bytes / 16); }
  /// The same, for what is no constant; and made uniform. Or where a step reads a panel.
  __device__ static u64 uniform_further(u64 operand, int bytes, u32 place = 0) {
    const u32 low = u32(operand) + u32(bytes) / 16 + place;  // the upper half is a constant, and stays one
    return (operand & 0xffffffff00000000) | __shfl_sync(0xffffffff, low, 0);
  }

  /// Descriptors of what a warpgroup multiplies, in the first slots: everything else is a few additions away from them.
  struct First {
    u64 weights, x;
    __device__ explicit First(const Shared& shared)
        : weights(ptx::wgmma_operand(resident ? shared.resident_weights + Roles::block() * resident_bytes(C)
                                              : shared.weights_of(Roles::block()))) {
      if constexpr (C.mapped) {
        static_assert(C.box_parts == 1);
        x = ptx::wgmma_mapped(ptx::shared_address(shared.panels), mapped_copy_bytes(C));
        return;
      }
      static_assert(C.box_parts == 1 || panel_part_stride(C) >= 0);
      const int of_part = C.box_parts == 1 ? 0 : Roles::part() * panel_part_stride(C) * 16;
      x = ptx::wgmma_panel(ptx::shared_address(shared.panels) + of_part, paired ? 0 : panel_slice_bytes(C));
    }
  };

  // ---- Steps -----------------------------------------------------------------------------------------

  /// Whether every type has its steps in one group: where they read is known for a whole tile then.
  __device__ static constexpr bool one_group_a_chunk() {
    for (int type = 0; type < C.types; ++type)
      if (Tables::steps(type) != group_steps) return false;
    return true;
  }
  /// Calls `group(step)` for each group of a tile's steps that reads the same panel.
  template <class Walk, class Group>
  __device__ static void each_group(const Walk& walk, int steps, const Group& group) {
    if constexpr (one_group_a_chunk()) {
      group(0);
    } else {
#pragma unroll 1
      for (int step = walk.first_step(); step < walk.end_step(steps); step += group_steps) group(step);
    }
  }
  /// Where a step reads a panel, as what is added to the descriptor of its first position: so many positions. Of a pair
  /// of steps the slice is the same, and the second half of an octet is the slice at the other step's shift.
  __device__ static constexpr u32 place_of(int entry) {
    const int low = Tables::low_offset(entry);
    return u32(low) | (paired ? u32(Tables::high_offset(entry) - low) << 16 : 0);
  }
  /// Where those of a group do.
  struct Offsets {
    u32 of_step[group_steps];
    __device__ explicit Offsets(int entry) {
#pragma unroll
      for (int s = 0; s < group_steps; ++s) of_step[s] = place_of(entry + s);
    }
  };

  // ---- A group of steps ------------------------------------------------------------------------------

  /// Where the weights of a group are, from those that are there to stay or from the first slot.
  __device__ static int slab_place_of(const Weights& weights, int chunk, int step) {
    if constexpr (resident)
      return (resident_place(C, chunk) + slab_place(C, 0, step)) * step_bytes;
    else
      return weights.next.slot * row_slab_bytes(C);
  }
  /// The weights of an octet and a step of a group.
  __device__ static constexpr int weights_at(int octet, int step) { return slab_place(C, octet, step) * step_bytes; }

  /// The operand of x for an octet and a product, from the group's first.
  __device__ static constexpr int x_at(int octet, int product) {
    if (C.mapped) return octet * 16 * mapped_positions * 2 + product * mapped_product_bytes(C);
    return octet * 2 * panel_slice_bytes(C) + panel_start(C, product) * 16;
  }

  /// The first operands of a group. Made before they are waited for.
  struct Group {
    u64 weights, x[group_steps];
    __device__ Group(const First& first, int slab, int slot, const Offsets& offsets)
        : weights(uniform_further(first.weights, slab)) {
      if constexpr (C.types == 1 && one_group_a_chunk()) {  // all offsets are constants
        const u64 panel = uniform_further(first.x, slot * panel_bytes(C));
#pragma unroll
        for (int s = 0; s < group_steps; ++s) x[s] = panel + place_of(s);
      } else {
#pragma unroll
        for (int s = 0; s < group_steps; ++s)
          x[s] = uniform_further(first.x, slot * panel_bytes(C), offsets.of_step[s]);
      }
    }
  };
};

}  // namespace tconv::device
